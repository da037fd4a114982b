"""Google Compute Engine, driven through libcloud."""
