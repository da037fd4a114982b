"""What a generation has to tell: output, metrics, checkpoints, how it ended."""
