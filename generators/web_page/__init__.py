"""What a page of checks is made of: captured from the own suite of a cell, and sealed."""
