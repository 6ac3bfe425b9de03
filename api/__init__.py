"""How people and programs see it: the command line."""
