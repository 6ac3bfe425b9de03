"""Signals from Prometheus: what is asked, how, and what an answer is worth."""
