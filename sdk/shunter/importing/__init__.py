"""Other tools' files and command lines as job documents, each part of them accounted for. No code of theirs is run."""

from shunter.importing.notes import Imported, Kind, Note
from shunter.importing.sources import import_from

__all__ = ["Imported", "Kind", "Note", "import_from"]
