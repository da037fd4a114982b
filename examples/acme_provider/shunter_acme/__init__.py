"""Shunter nodes on Acme."""

from shunter_acme.provider import AcmeProvider

__all__ = ["AcmeProvider"]
