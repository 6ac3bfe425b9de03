"""The REST interface, one file per group of paths."""
