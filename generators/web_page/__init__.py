"""What a page is made of that runs a cell's checks in a browser elsewhere: captured from the cell's own suite, sealed."""
