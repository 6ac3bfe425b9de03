"""The policies for caches that run live, in plain Python; the same entries go as in the shadow's compiled ones."""
