"""Command lines and variables of a gang's processes."""
