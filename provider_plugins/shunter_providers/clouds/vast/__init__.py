"""Vast.ai, a market of other people's machines."""
