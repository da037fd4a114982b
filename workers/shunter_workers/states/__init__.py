"""What to do with a job, by the state that it is in. Pure: rows in, a decision out."""
