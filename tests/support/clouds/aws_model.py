"""EC2's own model of its API, as botocore has it: what a request may hold, and what an answer is made of."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.etree import ElementTree

from shunter_providers.testing import Reply, Request

Tree = Mapping[str, Any]
_UNMODELLED: Final = ("requestId", "ResponseMetadata", "return")
"""In every answer, or in those that say nothing else, and of no use to clients."""
_SERVICES: Final = {"GetCallerIdentity": "sts"}


def faults_of_request(call: Request) -> list[str]:
    """What the model does not know, or misses, of a call in the query protocol."""
    form = dict(parse_qsl(call.body.decode(), keep_blank_values=True))
    action, version = form.pop("Action"), form.pop("Version")
    service = _service(action)
    found = (
        [] if version == service.api_version else [f"{action}: version {version}, the model has {service.api_version}"]
    )
    shape = service.operation_model(action).input_shape
    return found + (list(_asked(shape, _tree(form), action)) if shape is not None else [])


def faults_of_answer(call: Request, reply: Reply) -> list[str]:
    """What the model does not know of an answer that is a success."""
    action = dict(parse_qsl(call.body.decode()))["Action"]
    root = ElementTree.fromstring(reply.body)
    shape = _service(action).operation_model(action).output_shape
    wrapper = shape.serialization.get("resultWrapper") if shape is not None else None
    inner = next((one for one in root if _name(one) == wrapper), root) if wrapper else root
    return list(_answered(shape, inner, action))


@cache
def _service(action: str) -> Any:
    import botocore.session  # pyright: ignore[reportMissingImports] - the extra `vendors`, which only nightly tests need

    return botocore.session.get_session().get_service_model(_SERVICES.get(action, "ec2"))


def _tree(form: Mapping[str, str]) -> dict[str, Any]:
    """`A.1.B=x` as `{"A": {"1": {"B": "x"}}}`."""
    tree: dict[str, Any] = {}
    for name, value in form.items():
        *parents, last = name.split(".")
        at = tree
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return tree


def _asked(shape: Any, given: Any, where: str) -> Iterator[str]:
    """As botocore's serializer for EC2 would have written it."""
    if shape.type_name == "structure":
        members = {_written(name, member): (name, member) for name, member in shape.members.items()}
        for name, inner in given.items():
            if name in members:
                yield from _asked(members[name][1], inner, f"{where}.{name}")
            else:
                yield f"{where}: there is no {name}"
        there = {members[name][0] for name in given if name in members}
        yield from (f"{where}: {name} is missing" for name in shape.required_members if name not in there)
    elif shape.type_name == "list":
        numbers = sorted(int(number) for number in given)
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{where}: its numbers are {numbers}"
        for number, inner in given.items():
            yield from _asked(shape.member, inner, f"{where}.{number}")
    elif not isinstance(given, str) or not _FORMS[shape.type_name](given):
        yield f"{where}: {given!r} is no {shape.type_name}"
    elif (known := getattr(shape, "enum", ())) and given not in known:
        yield f"{where}: {given!r} is none of {known}"


def _answered(shape: Any, element: ElementTree.Element, where: str) -> Iterator[str]:
    if shape is None:
        return
    if shape.type_name == "structure":
        members = {member.serialization.get("name", name): member for name, member in shape.members.items()}
        for child in element:
            name = _name(child)
            if name in members:
                yield from _answered(members[name], child, f"{where}.{name}")
            elif name not in _UNMODELLED:
                yield f"{where}: there is no {name}"
    elif shape.type_name == "list":
        for child in element:
            yield from _answered(shape.member, child, f"{where}[]")
    elif len(element) or not (_FORMS[shape.type_name](element.text or "") or not element.text):
        yield f"{where}: {element.text!r} is no {shape.type_name}"
    elif (known := getattr(shape, "enum", ())) and element.text and element.text not in known:
        yield f"{where}: {element.text!r} is none of {known}"


def _written(name: str, member: Any) -> str:
    if "queryName" in member.serialization:
        return str(member.serialization["queryName"])
    told = str(member.serialization.get("name", name))
    return told[0].upper() + told[1:]


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


_FORMS: Final[Mapping[str, Callable[[str], bool]]] = {
    "string": lambda text: True,
    "integer": lambda text: re.fullmatch(r"-?\d+", text) is not None,
    "long": lambda text: re.fullmatch(r"-?\d+", text) is not None,
    "double": _is_number,
    "float": _is_number,
    "boolean": lambda text: text in ("true", "false"),
    "timestamp": lambda text: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text) is not None,
    "blob": _is_base64,
}
