"""Nodes: the ledger, what providers list, what agents say, and how gangs did."""
