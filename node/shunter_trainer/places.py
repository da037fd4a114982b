"""The folders and files that the agent gives this rank, and what a path of the document means here."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shunter_trainer.failures import UserFault

_INPUT = "input:"


@dataclass(frozen=True, slots=True)
class Places:
    """Where this rank reads and writes. The source folder is the working directory."""

    document: Path
    inputs: Path
    checkpoints: Path
    resume: Path | None
    output: Path
    metrics: Path | None
    generation: str
    scratch: Path
    """What ranks of this node prepare for each other; it may vanish with the node."""

    @staticmethod
    def from_environment(environ: Mapping[str, str] = os.environ) -> Places:
        """Raises: UserFault when `SHUNTER_DOCUMENT` is missing (the trainer was started by hand)."""
        document = environ.get("SHUNTER_DOCUMENT")
        if not document:
            raise UserFault("/", "SHUNTER_DOCUMENT must name the file that holds the job document")
        resume = environ.get("SHUNTER_RESUME_DIR")
        metrics = environ.get("SHUNTER_METRICS_FILE")
        checkpoints = Path(environ.get("SHUNTER_CHECKPOINT_DIR", "checkpoints"))
        return Places(
            document=Path(document),
            inputs=Path(environ.get("SHUNTER_INPUTS_DIR", "inputs")),
            checkpoints=checkpoints,
            resume=Path(resume) if resume else None,
            output=Path(environ.get("SHUNTER_OUTPUT_DIR", "output")),
            metrics=Path(metrics) if metrics else None,
            generation=environ.get("SHUNTER_GENERATION", "0"),
            scratch=Path(environ.get("SHUNTER_SCRATCH_DIR", checkpoints.parent / "scratch")),
        )

    def resolve(self, path: str) -> Path:
        """A path of the document: `input:NAME[/path]`, else relative to the source."""
        if path.startswith(_INPUT):
            return self.inputs / path.removeprefix(_INPUT)
        return Path(path)

    def files(self, path: str, pointer: str) -> list[Path]:
        """The files that a path or pattern of the document names, in an order that is the same on every node.

        Raises: UserFault, with what is there instead, when there are none, or when one is a link out of its input.
        """
        place = self.resolve(path)
        found = sorted(Path(name) for name in glob.glob(str(place), recursive=True))
        files = [name for name in found if name.is_file()]
        if files:
            self._stay_inside(path, files, pointer)
            return files
        if broken := [name for name in found if name.is_symlink()]:
            raise UserFault(pointer, f"{broken[0].name} is a link to nothing; put the file itself there")
        if found and not any(name.is_dir() for name in found):
            raise UserFault(pointer, f"{found[0].name} is no regular file; put the file itself there")
        if found:
            raise UserFault(pointer, f"{path!r} is a folder; name its files, such as {path.rstrip('/') + '/*'!r}")
        raise UserFault(pointer, f"no file matches {path!r} ({_nearest(place)})")

    def folder(self, path: str, pointer: str) -> Path:
        """The folder that a path of the document names.

        Raises: UserFault, with what is there instead, when there is none.
        """
        place = self.resolve(path)
        if place.is_dir():
            self._stay_inside(path, [place], pointer)
            return place
        if place.exists():
            raise UserFault(pointer, f"{path!r} is a file; name a folder")
        raise UserFault(pointer, f"there is no folder {path!r} ({_nearest(place)})")

    def _stay_inside(self, path: str, found: list[Path], pointer: str) -> None:
        """An input's files lie in the input: what a link would lead to elsewhere is no part of the job."""
        if not path.startswith(_INPUT):
            return
        root = os.path.realpath(self.inputs / path.removeprefix(_INPUT).partition("/")[0])
        if "*" in root:  # a pattern over inputs
            root = os.path.realpath(self.inputs)
        for file in found:
            if os.path.commonpath((os.path.realpath(file), root)) != root:
                raise UserFault(
                    pointer, f"{file.name} is a link that leads out of the input; put the file itself there"
                )


def _nearest(place: Path) -> str:
    folder = next(parent for parent in (*place.parents, Path("/")) if parent.is_dir())
    names = sorted(entry.name for entry in folder.iterdir())
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    where = "the source folder" if folder == Path() else f"{folder.name or folder}/"
    return f"{where} holds {shown}" if names else f"{where} is empty"
