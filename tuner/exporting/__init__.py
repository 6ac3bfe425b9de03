"""What the daemon tells Prometheus."""
