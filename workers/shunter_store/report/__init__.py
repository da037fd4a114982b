"""What trainings report: metrics, logs, artifacts, checkpoints."""
