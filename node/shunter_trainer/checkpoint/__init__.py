"""Checkpoints: one layout for every strategy, whole or not there at all."""
