"""Who decides: baselines, PPO, evaluation, the policy bundle and the MLflow registry."""
