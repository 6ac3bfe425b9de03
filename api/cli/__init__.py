"""The command line, one file per command group, loaded by name so that --help is instant."""
