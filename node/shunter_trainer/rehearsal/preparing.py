"""From a document to what the acts need: its folders, the cut document, and the certainty that it fits in here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from shunter_schemas.training import TrainingWorkload

from shunter_trainer.places import Places
from shunter_trainer.rehearsal.cutting import RANKS, Cut, cut
from shunter_trainer.rehearsal.inputs import lay_out

_BYTES_PER_PARAMETER = 18
"""Weights, gradients and Adam's two moments in fp32, and a copy on its way to a checkpoint."""
_INPUT = "input:"


class Unrehearsable(Exception):
    """This document cannot be rehearsed here; the message says why, and the way out."""


def prepare(document: Mapping[str, Any], folder: Path, *, narrow: bool) -> tuple[Cut, dict[str, Path]]:
    """The cut document, and where source and inputs lie for its ranks.

    Raises: Unrehearsable, or UserFault when the model cannot be built.
    """
    if document["workload"]["kind"] != "training":
        raise Unrehearsable(
            "only a `training` can be cut short; run a script yourself on two processes of this machine (torchrun "
            "--nproc-per-node 2 …), or submit it with resources.cpu_processes 2 and few steps among its arguments"
        )
    made = cut(document, narrow=narrow)
    source = _source(document, folder)
    inputs = {name: _input(name, entry["from"]) for name, entry in (document.get("inputs") or {}).items()}
    made.notes += lay_out(folder / "inputs", inputs)
    if made.workload["model"].get("weights"):
        _stand_in(made, source, inputs, folder)
    places = {"source": source, "inputs": folder / "inputs"}
    _check_memory(made, places)
    return made, places


def _source(document: Mapping[str, Any], folder: Path) -> Path:
    source = document.get("source")
    if source is None:
        empty = folder / "source"
        empty.mkdir(parents=True)
        return empty
    if source["kind"] != "folder":
        raise Unrehearsable(f"the source is a {source['kind']}; give its folder on this machine with --source")
    return Path(source["path"])


def _input(name: str, origin: str) -> Path:
    path = Path(origin)
    if not path.is_dir():
        way_out = f"put a small folder of the same kind in its place with --set inputs.{name}.from=FOLDER"
        raise Unrehearsable(f"the input {name} is {origin}, which is no folder on this machine; {way_out}")
    return path


def _stand_in(made: Cut, source: Path, inputs: Mapping[str, Path], folder: Path) -> None:
    from shunter_trainer.rehearsal.weights import stand_in

    weights = str(made.workload["model"]["weights"])
    name, _, rest = weights.removeprefix(_INPUT).partition("/")
    origin = inputs[name] / rest if weights.startswith(_INPUT) else source / weights
    try:
        stand_in(made, origin, folder / "inputs")
    except (OSError, ValueError) as error:
        raise Unrehearsable(f"the weights {weights} cannot be read: {error}") from error


def _check_memory(made: Cut, places: Mapping[str, Path]) -> None:
    """Models of our own making are built without memory first; a `python` model can only be tried."""
    available = _available_bytes()
    if made.workload["model"]["kind"] == "python" or available is None:
        return
    from shunter_trainer.models.build import build_model

    try:
        workload = TrainingWorkload.model_validate_json(json.dumps(made.workload))
    except ValidationError as error:
        raise Unrehearsable(f"the document cannot be cut: {error.errors()[0]['msg']}") from error
    here = Places.from_environment({"SHUNTER_DOCUMENT": "-", "SHUNTER_INPUTS_DIR": str(places["inputs"])})
    parameters = sum(parameter.numel() for parameter in build_model(workload, here).module.parameters())
    needed = parameters * _BYTES_PER_PARAMETER * RANKS
    if needed > 0.8 * available:
        raise Unrehearsable(
            f"two layers still have {parameters / 1e6:.0f} M parameters, about {needed / 2**30:.1f} GiB on {RANKS} "
            f"processes, and {available / 2**30:.1f} GiB are free; use --narrow to cut the widths too"
        )


def _available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
