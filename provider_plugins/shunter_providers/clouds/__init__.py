"""Clouds, one room each; one file where that is enough. What they share lies in `cloud_kit`."""
