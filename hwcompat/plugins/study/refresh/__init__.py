"""What of a folder of evidence has expired, which of it can be measured again here, and how long that takes."""
