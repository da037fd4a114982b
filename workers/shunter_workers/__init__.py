"""Celery workers: they move jobs along, watch providers, and clean up."""
