"""What one process at a time does beside stepping jobs. Each does it once and says when to do it again."""
