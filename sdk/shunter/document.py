"""A job document on its way out: read from a file, changed by `path=value`, its folders found.

Nothing here talks to the service. A document is a plain JSON object until `check` reads it with the schema.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shunter_schemas.faults import DocumentError, Fault, pointer
from shunter_schemas.posted import is_local_path
from shunter_schemas.reading import read_json

from shunter.errors import InvalidDocument, in_words
from shunter.foreign import check_whose, way_from
from shunter.reading import read_commented_json, read_yaml

Document = dict[str, Any]

_YAML = (".yaml", ".yml")
_BEGINS_AS_JSON = re.compile(rb"\s*(\{|//|/\*)")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that the document names and that has to be uploaded: where it stands, and which one it is."""

    place: str
    """`/source` or `/inputs/NAME`."""
    path: Path


def prepare(
    document: str | Path | Mapping[str, Any], *, source: str | Path | None = None, settings: Iterable[str] = ()
) -> tuple[Document, Path]:
    """A document with its changes made, and the folder in which its relative folders lie."""
    if isinstance(document, Mapping):
        prepared, base = dict(document), Path.cwd()
    else:
        prepared, base = load_document(document), Path(document).parent
    prepared = with_values(prepared, settings)
    if source is not None:
        prepared = with_source(prepared, source)
    return prepared, base


def load_document(path: str | Path) -> Document:
    """Read a job document from a file: JSON, in which comments and trailing commas may stand, or YAML.

    `.yaml` and `.yml` are YAML; what comes on standard input (`-`) is YAML unless it begins as a JSON object does. A
    `$schema`, by which editors know the document, is dropped.

    Raises:
        InvalidDocument: there is no such file, or it is not one JSON object; the message says where.
    """
    file = Path(path)
    try:
        body = sys.stdin.buffer.read() if str(path) == "-" else file.read_bytes()
    except OSError as error:
        raise InvalidDocument(f"{file}: {error.strerror or error}") from error
    if not body.strip():
        raise InvalidDocument(f"{file} is empty", hint="shunter init begins a document")
    is_yaml = file.suffix.lower() in _YAML or (str(path) == "-" and not _BEGINS_AS_JSON.match(body))
    try:
        document = (read_yaml if is_yaml else read_commented_json)(body)
    except DocumentError as error:
        raise InvalidDocument(
            f"{file}: {in_words(error.faults[0])}", error.faults, hint=way_from(file, body)
        ) from error
    if not isinstance(document, dict):
        raise InvalidDocument(f"{file} holds {_kind(document)}; a job document is an object: {{…}}")
    check_whose(file, document)
    document.pop("$schema", None)
    return document


def with_values(document: Mapping[str, Any], settings: Iterable[str]) -> Document:
    """A copy of the document with each `a.b.c=value` set; a number is a place in a list, `\\.` a dot in a name.

    The value is JSON if it can be read as JSON and otherwise text, so `batch.global_size=64` is a number and
    `name=run-7` needs no quotes. Objects on the way are made where they are missing.

    Raises:
        InvalidDocument: a setting has no `=`, or its path leads through something that is no object or list; or the
            document holds what JSON has no word for.
    """
    changed: Document = json.loads(encode(document))
    for setting in settings:
        path, equals, value = setting.partition("=")
        names = [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", path)]
        if not equals or not all(names):
            raise InvalidDocument(f"--set {setting}: expected path=value, for example duration.steps=100")
        _set(changed, names, _value(value), setting)
    return changed


def with_source(document: Mapping[str, Any], folder: str | Path) -> Document:
    """A copy of the document whose source is this folder."""
    return {**document, "source": {"kind": "folder", "path": str(Path(folder).absolute())}}


def folders(document: Mapping[str, Any], base: Path) -> list[Folder]:
    """The folders that the document names in `source` and `inputs`; relative ones lie beside the document."""
    found: list[Folder] = []
    source = document.get("source")
    if isinstance(source, dict) and source.get("kind") == "folder":
        path = source.get("path", ".")
        if isinstance(path, str):
            found.append(Folder("/source", base / path))
    inputs = document.get("inputs")
    for name, entry in inputs.items() if isinstance(inputs, dict) else ():
        origin = entry.get("from") if isinstance(entry, dict) else None
        if isinstance(origin, str) and is_local_path(origin):
            found.append(Folder(f"/inputs/{name}", base / origin))
    return found


def with_bundle(document: Mapping[str, Any], folder: Folder, bundle_id: str) -> Document:
    """A copy of the document that names the uploaded bundle in place of the folder."""
    if folder.place == "/source":
        return {**document, "source": {"kind": "bundle", "id": bundle_id}}
    name = folder.place.removeprefix("/inputs/")
    entry = {**document["inputs"][name], "from": f"bundle:{bundle_id}"}
    return {**document, "inputs": {**document["inputs"], name: entry}}


def encode(document: Mapping[str, Any]) -> bytes:
    """The document as it goes over the wire.

    Raises:
        InvalidDocument: it holds something that JSON has no word for.
    """
    try:
        return json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:  # also lone surrogates, which UTF-8 cannot carry
        raise InvalidDocument(f"the document cannot be written as JSON: {error}") from error


def _value(text: str) -> Any:
    try:
        return read_json(text.encode(errors="surrogateescape"))
    except DocumentError:
        return text


def _set(target: Any, names: list[str], value: Any, setting: str) -> None:
    *way, last = names
    for depth, name in enumerate(way):
        target = _step(target, name, setting, way[:depth])
    if isinstance(target, list):
        target[_index(target, last, setting)] = value
    elif isinstance(target, dict):
        target[last] = value
    else:
        raise _no_way(target, setting, way)


def _step(target: Any, name: str, setting: str, here: list[str]) -> Any:
    if isinstance(target, list):
        return target[_index(target, name, setting)]
    if not isinstance(target, dict):
        raise _no_way(target, setting, here)
    if target.get(name) is None:
        target[name] = {}
    return target[name]


def _index(target: list[Any], name: str, setting: str) -> int:
    if not name.isdecimal() or int(name) >= len(target):
        raise InvalidDocument(f"--set {setting}: {name} is no place in a list of {len(target)}")
    return int(name)


def _no_way(target: Any, setting: str, here: list[str]) -> InvalidDocument:
    place, held = pointer(here), _kind(target)
    return InvalidDocument(f"--set {setting}: {place} is {held}", [Fault(place, f"is {held}, not an object")])


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
