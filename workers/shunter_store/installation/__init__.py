"""This installation: who it is, its settings, keys, leases, and what its operator has to know."""
