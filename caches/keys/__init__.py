"""What makes two requests the same, and who may share an answer."""
