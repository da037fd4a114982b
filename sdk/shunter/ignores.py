"""Which files of a folder belong to it, by `.gitignore` and `.shunterignore` as git reads them.

Both may stand in any folder below the root. Deeper files win over those above, and in one folder `.shunterignore` is
read after `.gitignore`, so that it has the last word (`!dist/` sends what git leaves out).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

NEVER_SENT: Final = (
    ".git/", ".hg/", ".svn/", ".shunter/", ".venv/", "venv/", "node_modules/", "__pycache__/", "*.pyc", ".mypy_cache/",
    ".ruff_cache/", ".pytest_cache/", ".ipynb_checkpoints/", ".tox/", ".DS_Store",
)  # fmt: skip
"""Left out unless an ignore file names them with `!`."""

_FILES: Final = (".gitignore", ".shunterignore")


@dataclass(frozen=True, slots=True)
class Ignores:
    """The rules that hold inside one folder: one layer for each folder above it that has rules."""

    layers: tuple[tuple[str, GitIgnoreSpec], ...]

    @classmethod
    def at_root(cls, root: Path) -> Ignores:
        """The rules at the top of the folder that is sent."""
        return cls((("", GitIgnoreSpec.from_lines(NEVER_SENT)),)).inside(root, "")

    def inside(self, folder: Path, prefix: str) -> Ignores:
        """The rules inside `folder`, whose path below the root is `prefix` (empty or with a slash at the end)."""
        lines = [line for name in _FILES for line in _lines(folder / name)]
        if not lines:
            return self
        return Ignores((*self.layers, (prefix, GitIgnoreSpec.from_lines(lines))))

    def leave_out(self, path: str) -> bool:
        """Whether this path below the root stays behind; folders are asked with a slash at the end."""
        for prefix, spec in reversed(self.layers):
            verdict = spec.check_file(path[len(prefix) :]).include
            if verdict is not None:
                return verdict
        return False


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
