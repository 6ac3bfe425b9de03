"""How long an answer stays fresh: lifetimes by rules, measured change, feedback, epochs."""
