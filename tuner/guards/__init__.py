"""What guardrails are made of: `tuner/guardrails.py` in its parts."""
