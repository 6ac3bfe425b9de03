"""Exact replay of a trace through a cache that holds no values: arrays and positions instead of a hash table."""
