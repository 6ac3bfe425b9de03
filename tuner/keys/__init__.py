"""The key stream and the ghost caches beside it."""
