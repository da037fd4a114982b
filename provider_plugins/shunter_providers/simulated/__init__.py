"""A whole cloud on this machine: offers, prices, capacity, quotas, spot, faults, and a bill, kept in one file.

Several processes may use one cloud at a time, as workers use a real one. With `nodes = "agents"` its nodes are real
agent processes that train; with `nodes = "bare"` they are entries only, for thousands of them. Nothing here costs
money: platform teams rehearse with it, and tests read its bill.
"""

from shunter_providers.simulated.provider import SimulatedProvider

__all__ = ["SimulatedProvider"]
