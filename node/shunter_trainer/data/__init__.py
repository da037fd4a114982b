"""Data: texts and tensors as indexable samples, in an order that depends on the seed and the position only."""
