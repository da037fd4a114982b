"""What is done on a node before its ranks start."""
