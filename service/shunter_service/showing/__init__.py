"""Rows to what the API shows. Pure."""
