"""Finds what `module:name` of the document stands for in the user's source."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from shunter_trainer.failures import UserFault


def load_target(target: str, pointer: str) -> Callable[..., Any]:
    """Import the module, from the source folder first, and take the name out of it.

    An error inside the user's module passes through as it is, with its traceback.

    Raises: UserFault when there is no such module or name, or when it cannot be called.
    """
    module_name, _, path = target.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise UserFault(
            pointer,
            f"there is no module {module_name!r} in the source folder or the environment; "
            "give the job a `source`, or add its package to environment.requirements",
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise UserFault(pointer, f"{module_name!r} has no {path!r} (it has {_public_names(found)})")
        found = getattr(found, name)
    if not callable(found):
        raise UserFault(pointer, f"{target!r} is a {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]  # what a user's module holds has no type


def call_target(target: str, arguments: Mapping[str, Any], pointer: str, *leading: Any) -> Any:
    """`target(*leading, **arguments)`; arguments that do not fit are named by their place in the document."""
    function = load_target(target, f"{pointer}/target")
    import inspect

    try:
        inspect.signature(function).bind(*leading, **arguments)
    except TypeError as error:
        raise UserFault(f"{pointer}/arguments", f"{target} does not take these: {error}") from error
    except ValueError:
        pass  # some built-in callables have no signature
    return function(*leading, **arguments)


def _public_names(holder: Any) -> str:
    names = [name for name in dir(holder) if not name.startswith("_")]
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "") if names else "no public names"
