"""Pages for a browser: one self-contained file each, without network access."""
