"""Seeded synthetic workloads made of named parts."""
