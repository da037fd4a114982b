"""Conversations out of records: `messages` with role and content, or `conversations` with from and value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shunter_trainer.data.records import Record, named
from shunter_trainer.failures import UserFault

ASSISTANT = "assistant"

_SHARED_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": ASSISTANT,
    "chatgpt": ASSISTANT,
    "assistant": ASSISTANT,
    "model": ASSISTANT,
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages as chat templates take them."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    where: str
    """For people: the file and the line."""


def conversation(record: Record, pointer: str) -> Conversation:
    """Raises: UserFault naming the line, when it is none."""
    values, where = record.values, record.where
    place = f"{pointer}/path"
    if "messages" in values:
        found = [_message(item, where, place) for item in _list(values["messages"], "messages", where, place)]
    elif "conversations" in values:
        found = [_shared(item, where, place) for item in _list(values["conversations"], "conversations", where, place)]
    else:
        raise UserFault(place, f"{where} has neither `messages` nor `conversations` (it holds {named(values)})")
    tools = values.get("tools")
    if isinstance(tools, str):  # as text, since columns of mixed types are hard to keep
        tools = _parsed_tools(tools, where, place)
    if tools is not None and not isinstance(tools, list):
        raise UserFault(place, f"{where}: `tools` must be a list")
    return Conversation(found, tools or None, where)


def _list(value: Any, name: str, where: str, place: str) -> list[Any]:
    if isinstance(value, list) and value:
        return value
    what = "an empty list" if value == [] else f"a {type(value).__name__}"
    raise UserFault(place, f"{where}: `{name}` is {what}; give a list of messages")


def _message(item: Any, where: str, place: str) -> dict[str, Any]:
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        what = f"it holds {named(item)}" if isinstance(item, Mapping) else f"it is a {type(item).__name__}"
        raise UserFault(place, f'{where}: a message needs "role" and "content" ({what})')
    # Null stands for nothing given; templates would print it.
    message = {str(name): value for name, value in item.items() if value is not None}
    if not isinstance(message.get("content", ""), str | list):
        raise UserFault(place, f"{where}: the content of a message must be text, not {type(item['content']).__name__}")
    if "content" not in message and not message.get("tool_calls"):
        raise UserFault(place, f"{where}: a message of {item['role']!r} has no content")
    return message


def _shared(item: Any, where: str, place: str) -> dict[str, Any]:
    if not isinstance(item, Mapping) or not isinstance(item.get("value"), str):
        if isinstance(item, Mapping) and "role" in item:
            return _message(item, where, place)
        raise UserFault(place, f'{where}: each of `conversations` needs "from" and "value" as text')
    role = _SHARED_ROLES.get(str(item.get("from")))
    if role is None:
        known = ", ".join(_SHARED_ROLES)
        raise UserFault(place, f"{where}: nobody knows who {item.get('from')!r} is (known: {known})")
    return {"role": role, "content": item["value"]}


def _parsed_tools(text: str, where: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserFault(place, f"{where}: `tools` is no JSON ({error})") from error
