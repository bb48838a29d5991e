"""The page that somebody opens on a device of their own: rendered, packed into a zip file, served on loopback."""
