"""A policy beside a live cache on this machine: real servers on loopback, replayed traffic, time that runs faster."""
