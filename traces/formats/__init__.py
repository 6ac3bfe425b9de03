"""One file per trace format; traces/catalog.py has the list."""
