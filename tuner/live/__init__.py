"""Live caches that are tuned: what the seam `caches/target.py` says, of a gateway and of a replay."""
