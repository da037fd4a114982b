"""The HTTP service: the REST API, the node's side of it, and the supervisor of a single machine.

Nothing is imported here: `python -m shunter_service up` must stay small.
"""
