"""Lines of a job's output, out of stored bytes."""
