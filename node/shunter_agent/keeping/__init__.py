"""What the agent keeps on disk, and its clocks."""
