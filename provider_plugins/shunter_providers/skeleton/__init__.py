"""`shunter provider new`: a plugin that works, with a toy cloud and the conformance kit, for its author to change.

The templates are the files of `examples/acme_provider/`, a test holds them to that; what says `acme` there gets the
name of the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")
_FILES: Final[Mapping[str, str]] = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "shunter_acme/__init__.py": "init.py.txt",
    "shunter_acme/provider.py": "provider.py.txt",
    "shunter_acme/toy_cloud.py": "toy_cloud.py.txt",
    "tests/test_acme.py": "test_acme.py.txt",
}
"""Where each template goes."""


class BadName(ValueError):
    """The name cannot be a plugin's."""


def write_skeleton(name: str, folder: Path) -> Sequence[Path]:
    """Write a new plugin into a folder that does not exist yet (or is empty); the files written.

    Raises:
        BadName: not small letters, digits and hyphens.
        FileExistsError: the folder holds something.
    """
    if not _NAME.fullmatch(name):
        raise BadName(f"{name!r} is no name for a plugin: small letters, digits and hyphens, beginning with a letter")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} holds something already; give another --folder")
    written = []
    for path, text in rendered(name).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        written.append(target)
    return written


def rendered(name: str) -> Mapping[str, str]:
    """The files of a plugin of this name, by their paths."""
    templates = files(__name__).joinpath("template")
    return {
        _named(path, name): _named(templates.joinpath(template).read_text(encoding="utf-8"), name)
        for path, template in _FILES.items()
    }


def _named(text: str, name: str) -> str:
    snake = name.replace("-", "_")
    camel = "".join(part.capitalize() for part in name.split("-"))
    for word, other in (
        ("shunter_acme", f"shunter_{snake}"),
        ("test_acme", f"test_{snake}"),
        ("ACME", snake.upper()),
        ("Acme", camel),
        ("acme", name),
    ):
        text = text.replace(word, other)
    return text
