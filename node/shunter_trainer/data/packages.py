"""Packages that only some kinds of data need; a node may lack them."""

from __future__ import annotations

import importlib
from typing import Any

from shunter_trainer.failures import UserFault


def package(module: str, distribution: str, pointer: str) -> Any:
    """Import a module of an optional package.

    Raises: UserFault with the way out when the node does not have it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise UserFault(
            pointer, f"needs the package {distribution!r}; add it to environment.requirements, since the node lacks it"
        ) from error
