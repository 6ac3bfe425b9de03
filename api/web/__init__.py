"""The page for people: rendered here, kept up to date by a script of our own, and all of it without that script."""
