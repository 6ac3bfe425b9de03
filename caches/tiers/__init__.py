"""The tiers of the live cache, behind one seam: tier.py."""
