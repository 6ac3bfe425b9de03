"""Measurements of speed and of what tuning saves; each prints its figures and keeps them in RESULTS.md."""
