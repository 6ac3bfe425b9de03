"""What is in deploy/, held to what it is for."""
