"""One tick of the control loop: `tuner/control.py` in its parts."""
