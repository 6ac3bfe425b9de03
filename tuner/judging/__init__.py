"""How an experiment is judged: `tuner/analysis.py` in its parts."""
