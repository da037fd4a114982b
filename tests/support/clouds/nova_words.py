"""What nova takes, and how it says no: as a real one was seen to do it (`tests/data/openstack/answers.json`)."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
from shunter_providers.testing import Refusal, Reply

_NAMES: Final[Mapping[int, str]] = {
    400: "badRequest",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    429: "overLimit",
    503: "serviceUnavailable",
}
_NO_NAME: Final = (
    "An invalid 'name' value was provided. The name must be: printable characters. "
    "Can not start or end with whitespace."
)
_FORMATS: Final = jsonschema.FormatChecker(formats=())
_NAME: Final = {"type": "string", "format": "name", "minLength": 1, "maxLength": 255}
_YES_AND_NO: Final = (
    *(True, "True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes"),
    *(False, "False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no"),
)


def _closed(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """An object that has these properties and no other."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


ORDER: Final = _closed(
    {
        "server": _closed(
            {
                "name": _NAME,
                "imageRef": {"oneOf": [{"type": "string", "format": "uuid"}, {"type": "string", "maxLength": 0}]},
                "flavorRef": {"type": ["string", "integer"], "minLength": 1},
                "metadata": {
                    "type": "object",
                    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": "string", "maxLength": 255}},
                    "additionalProperties": False,
                },
                "networks": {
                    "type": "array",
                    "items": _closed(
                        {
                            "fixed_ip": {"type": "string"},
                            "port": {"type": ["string", "null"], "format": "uuid"},
                            "uuid": {"type": "string"},
                        }
                    ),
                },
                "config_drive": {"type": ["boolean", "string"], "enum": list(_YES_AND_NO)},
                "key_name": _NAME,
                "user_data": {"type": "string", "format": "base64", "maxLength": 65535},
            },
            "name",
            "flavorRef",
        )
    },
    "server",
)
"""`POST /servers` of nova 2.1, as far as the fake goes."""
CONSOLE: Final = _closed(
    {
        "os-getConsoleOutput": _closed(
            {"length": {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]+$", "minimum": -1}}
        )
    },
    "os-getConsoleOutput",
)
"""`POST /servers/ID/action` for a console."""


def check(schema: Mapping[str, Any], body: Any) -> None:
    """Raises the refusal of a body that the schema does not take."""
    validator = jsonschema.Draft202012Validator(schema, format_checker=_FORMATS)
    wrong = next(validator.iter_errors(body), None)
    if wrong is None:
        return
    said = wrong.message
    if (wrong.validator, wrong.validator_value) == ("format", "name"):
        said = _NO_NAME
    elif wrong.path:
        said = f"Invalid input for field/attribute {wrong.path[-1]}. Value: {wrong.instance}. {said}"
    raise refused(400, said)


def refused(status: int, message: str) -> Refusal:
    """nova's own refusal."""
    return Refusal(*error(status, _NAMES[status], message))


def error(status: int, name: str, message: str) -> Reply:
    """The body that every service of OpenStack has: one object, whose name says what it is."""
    return Reply(status, {name: {"code": status, "message": message}})


def _is_name(value: Any) -> bool:
    return not isinstance(value, str) or re.fullmatch(r"(\S(.*\S)?)?", value) is not None


def is_uuid(value: Any) -> bool:
    """Whether it is one, dashes or none."""
    try:
        return not isinstance(value, str) or bool(uuid.UUID(value))
    except ValueError:
        return False


def _is_base64(value: Any) -> bool:
    try:
        return not isinstance(value, str) or base64.b64decode(value, validate=False) is not None
    except ValueError:
        return False


for _format, _is_one in (("name", _is_name), ("uuid", is_uuid), ("base64", _is_base64)):
    _FORMATS.checks(_format)(_is_one)
