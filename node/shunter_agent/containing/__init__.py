"""A container image on a machine that has to run it itself: brought, and kept running with the node's agent inside."""
