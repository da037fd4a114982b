"""The search: which strategy, micro-batch and checkpointing go on a kind of machine, and which machine is best."""
