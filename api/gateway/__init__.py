"""The live cache in front of an OpenAI-compatible backend: the same API, answered from the cache where it can be."""
