"""Guards between the cache and what it depends on: health, rates, classes of prompts, and who answers instead."""
