"""The nodes' side of the API."""
