"""The texts that stand below the attributes of a class: settings and fields are described there, and nowhere twice."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any


def attribute_docs(cls: type[Any]) -> dict[str, str]:
    """By attribute, those of base classes too."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("shunter"):
            found |= _own(base)
    return found


def _own(cls: type[Any]) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return {
        before.target.id: " ".join(after.value.value.split())
        for before, after in pairwise(tree.body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    }
