"""The routes. A handler is one call into the service and one shaping call."""
