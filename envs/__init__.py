"""Control as a Gymnasium problem: interval, observation, reward, serving model, replay environments."""
