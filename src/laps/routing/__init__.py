"""What is decided: which peer leads to a node, and where data goes. It never sees the wire."""
