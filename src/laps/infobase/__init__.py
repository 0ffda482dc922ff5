"""What is known: nodes, subscribes, announces. An add or withdraw returns the change, or None."""
