"""What is allowed to happen: the settings of a Setpoint installation."""
