"""What PPO has to beat."""
