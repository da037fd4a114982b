"""The gathering of a gang on several nodes: whether they reach each other, before anything of the user's starts."""
