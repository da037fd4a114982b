"""Backups of the embedded default: made while it runs, checked before they are restored."""
