"""What goes between this node and its service."""
