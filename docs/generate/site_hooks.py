"""Hooks of the site's build: folders in the navigation, and the two pages that lie in the repository's root."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_ROOT: Final = Path(__file__).parents[2]
_FROM_ROOT: Final = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder in its place in the navigation; a folder that is not there is left out."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the pages of the repository's root along, their links seen from the site."""
    for name, source in _FROM_ROOT.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=re.sub(r"\]\(docs/", "](", text)))
    return files


def _expanded(nav: Any, docs: Path) -> Any:
    if isinstance(nav, list):
        return [entry for item in nav if (entry := _expanded(item, docs)) not in ([], {})]
    if isinstance(nav, dict):
        return {title: inner for title, item in nav.items() if (inner := _expanded(item, docs)) != []}
    if isinstance(nav, str) and nav.endswith("/"):
        return [nav + path.name for path in sorted((docs / nav).glob("*.md"), key=_place)]
    return nav


def _place(page: Path) -> tuple[bool, str]:
    """The folder's own page first."""
    return page.name != "README.md", page.name
