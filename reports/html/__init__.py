"""Pages for a browser: one self-contained file each, that opens from anywhere and asks nothing of the network."""
