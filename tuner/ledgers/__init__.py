"""Ledgers in SQL databases: what the seam `tuner/ledger.py` says, table by table."""
