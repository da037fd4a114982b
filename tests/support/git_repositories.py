"""Git repositories in folders, made without the settings of whoever runs the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
_AUTHOR = ("-c", "user.name=t", "-c", "user.email=t@example.org")


def make_repository(folder: Path, files: Mapping[str, str]) -> str:
    """A repository that holds these files in one commit on the branch `main`; the commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, *_AUTHOR, "commit", "--quiet", "-m", "one")
    return git(folder, "rev-parse", "HEAD")


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    answer = subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **_ALONE}, capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()
