"""Streamed answers that are kept while they come: logs, who writes them, and who joins."""
