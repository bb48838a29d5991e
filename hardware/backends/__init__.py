"""Backends run models on targets. One file a target; the listing of this folder is the list of targets."""
