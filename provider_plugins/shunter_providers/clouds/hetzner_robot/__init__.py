"""Hetzner Robot: dedicated servers with GPUs, by the month."""
