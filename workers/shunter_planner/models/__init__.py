"""What a model is made of, as far as memory and time depend on it: from the document alone, nothing is imported."""
