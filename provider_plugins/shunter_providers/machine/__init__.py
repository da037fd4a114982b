"""A node as an agent process on this machine: its folder, its processes, its start and its end."""
