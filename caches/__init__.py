"""The thing being tuned: knobs, statistics, the shadow cache (exact replay) and the in-process live cache."""
