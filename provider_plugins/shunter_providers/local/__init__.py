"""Nodes on the service's own machine: the embedded default, which needs no account and costs nothing."""

from shunter_providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]
