"""Evidence: the lines that runs write, and how they are read, kept, merged, compacted and published."""
