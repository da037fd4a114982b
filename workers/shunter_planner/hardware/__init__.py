"""What machines can do: GPUs, what joins them, CPUs. Tables with the source of every figure."""
