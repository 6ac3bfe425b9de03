"""An OpenAI-compatible backend in which no model runs: it answers as fast as a serving profile would, and says so."""
