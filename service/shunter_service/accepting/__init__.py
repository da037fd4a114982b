"""What is done with a document: checked, planned, accepted, moved."""
