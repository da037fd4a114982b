"""What nova is asked that it should refuse or answer. What it said is recorded, so that the fake can be held to it
where no nova runs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from support.documents import REPOSITORY
from support.waiting import wait_until

ANSWERS: Final = REPOSITORY / "tests/data/openstack/answers.json"
_NOTHING: Final = "01234567-89ab-cdef-0123-456789abcdef"
_LEFT_OUT: Final = object()

# fmt: off
_CREATES: Final[Mapping[str, Mapping[str, Any]]] = {
    "with a property that nobody knows":  {"server": {"bogus": 1}},
    "with something beside the server":   {"bogus": 1},
    "without a name":                     {"server": {"name": _LEFT_OUT}},
    "with an empty name":                 {"server": {"name": ""}},
    "with a name of 256 characters":      {"server": {"name": "n" * 256}},
    "with a name that begins with space": {"server": {"name": " name"}},
    "with a number for a name":           {"server": {"name": 7}},
    "without a flavor":                   {"server": {"flavorRef": _LEFT_OUT}},
    "of a flavor that is not there":      {"server": {"flavorRef": "nothing"}},
    "without an image":                   {"server": {"imageRef": _LEFT_OUT}},
    "of an image that is not there":      {"server": {"imageRef": _NOTHING}},
    "of an image by its name":            {"server": {"imageRef": "Ubuntu 24.04"}},
    "in a network that is not there":     {"server": {"networks": [{"uuid": _NOTHING}]}},
    "in a network by its name":           {"server": {"networks": [{"uuid": "Ext-Net"}]}},
    "in a network with odd properties":   {"server": {"networks": [{"uuid": _NOTHING, "name": "x"}]}},
    "in networks that are no list":       {"server": {"networks": "Ext-Net"}},
    "with a key that is not there":       {"server": {"key_name": "nobodys"}},
    "with user data that is no base64":   {"server": {"user_data": "abc"}},
    "with user data that is too long":    {"server": {"user_data": "A" * 65536}},
    "with an odd name of metadata":       {"server": {"metadata": {"a/b": "c"}}},
    "with metadata that is no text":      {"server": {"metadata": {"a": 1}}},
    "with metadata that is too long":     {"server": {"metadata": {"a": "v" * 256}}},
    "with too much metadata":             {"server": {"metadata": {f"key-{n}": "v" for n in range(129)}}},
    "with an odd config drive":           {"server": {"config_drive": "maybe"}},
}
_CALLS: Final[Mapping[str, tuple[str, str, Any]]] = {
    "a create without a body":            ("POST",   "/servers", b""),
    "a create that is no JSON":           ("POST",   "/servers", b"{"),
    "a create that is a list":            ("POST",   "/servers", []),
    "a create of nothing":                ("POST",   "/servers", {}),
    "a server that is not there":         ("GET",    f"/servers/{_NOTHING}", None),
    "a server whose id is odd":           ("GET",    "/servers/nothing", None),
    "the end of one that is not there":   ("DELETE", f"/servers/{_NOTHING}", None),
    "the console of one that is not there": ("POST", f"/servers/{_NOTHING}/action", {"os-getConsoleOutput": {}}),
    "an action that nobody knows":        ("POST",   "/servers/{server}/action", {"os-bogus": {}}),
    "two actions at once":                ("POST",   "/servers/{server}/action", {"os-start": None, "os-bogus": None}),
    "a console of odd length":            ("POST",   "/servers/{server}/action",
                                           {"os-getConsoleOutput": {"length": "x"}}),
    "a console with odd properties":      ("POST",   "/servers/{server}/action",
                                           {"os-getConsoleOutput": {"bogus": 1}}),
    "a console":                          ("POST",   "/servers/{server}/action",
                                           {"os-getConsoleOutput": {"length": 400}}),
    "a page after one that is not there": ("GET",    f"/servers/detail?name=%5Eprobe&marker={_NOTHING}", None),
    "a page of a size below 0":           ("GET",    "/servers/detail?limit=-1", None),
    "a page of an odd size":              ("GET",    "/servers/detail?limit=many", None),
    "a page of one":                      ("GET",    "/servers/detail?name=%5Eprobe&limit=1", None),
    "servers of which there are none":    ("GET",    "/servers/detail?name=%5Enobody&limit=100", None),
    "a server":                           ("GET",    "/servers/{server}", None),
    "flavors in detail":                  ("GET",    "/flavors/detail?limit=1000", None),
    "limits":                             ("GET",    "/limits", None),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Probed:
    """Something that may be nova: a project with one flavor of 2 cores, without servers."""

    ask: Callable[[str, str, Any], tuple[int, Any]]
    """Method, path after the version, and body; status and answer."""
    limit_cores: Callable[[int], None]
    """Set the quota of cores."""
    flavor: str
    image: str
    network: str

    def order(self, **changes: Any) -> dict[str, Any]:
        """A create that is taken."""
        return {
            "name": "probe-one",
            "flavorRef": self.flavor,
            "imageRef": self.image,
            "networks": [{"uuid": self.network}],
            "metadata": {"shunter-job": "job_1"},
            "user_data": base64.b64encode(b"#cloud-config\n{}\n").decode(),
            **changes,
        }


def answers_of(probed: Probed) -> dict[str, Any]:
    """Everything that it said, with ids by what they are of: refusals as they are, other answers by their form."""
    said: dict[str, tuple[int, Any]] = {}
    for name, changes in _CREATES.items():
        order = probed.order(**changes.get("server", {}))
        body = {"server": {key: value for key, value in order.items() if value is not _LEFT_OUT}}
        body |= {key: value for key, value in changes.items() if key != "server"}
        said[f"a create {name}"] = probed.ask("POST", "/servers", body)
    probed.limit_cores(1)
    said["a create over the quota"] = probed.ask("POST", "/servers", {"server": probed.order()})
    probed.limit_cores(100)
    said["a create"] = probed.ask("POST", "/servers", {"server": probed.order()})
    said["a create that is sent again"] = probed.ask("POST", "/servers", {"server": probed.order()})
    made = [said[name][1]["server"]["id"] for name in ("a create", "a create that is sent again")]
    _until(probed, made, lambda status, answer: status == 200 and answer["server"]["status"] == "ACTIVE")
    for name, (method, path, body) in _CALLS.items():
        said[name] = probed.ask(method, path.format(server=made[0]), body)
    said["twins"] = probed.ask("GET", "/servers/detail?name=%5Eprobe-one%24", None)
    for name, server in zip(("an end", "the end of its twin"), made, strict=True):
        said[name] = probed.ask("DELETE", f"/servers/{server}", None)
    _until(probed, made, lambda status, answer: status == 404)
    said["one that was ended"] = probed.ask("GET", f"/servers/{made[0]}", None)
    said["the end of one that was ended"] = probed.ask("DELETE", f"/servers/{made[0]}", None)
    known = {
        probed.flavor: "{flavor}",
        probed.image: "{image}",
        probed.network: "{network}",
        made[0]: "{server}",
        made[1]: "{twin}",
    }
    return {name: _shown(status, answer, known) for name, (status, answer) in said.items()}


def fits(answer: Any, recorded: Any) -> bool:
    """Whether an answer's form has nothing that the recorded one has not; what may be null may be anything."""
    if isinstance(answer, dict) and isinstance(recorded, dict):
        return all(name in recorded and fits(value, recorded[name]) for name, value in answer.items())
    if isinstance(answer, list) and isinstance(recorded, list):
        return not answer or (len(recorded) > 0 and fits(answer[0], recorded[0]))
    return "null" in (answer, recorded) or bool(answer == recorded)


def _until(probed: Probed, servers: list[str], ready: Callable[[int, Any], bool]) -> None:
    for server in servers:
        wait_until(
            lambda server=server: ready(*probed.ask("GET", f"/servers/{server}", None)),  # type: ignore[misc]
            description=f"{server} is as it should be",
            timeout_s=60,
        )


def _shown(status: int, answer: Any, known: Mapping[str, str]) -> dict[str, Any]:
    if status < 300:
        return {"status": status, "form": _form(answer)}
    text = json.dumps(answer)
    for id_, name in known.items():
        text = text.replace(id_, name)
    return {"status": status, "refusal": json.loads(re.sub(r"(\w)\1{49,}", r"\1...\1", text))}


def _form(answer: Any) -> Any:
    """Names and kinds; of a list the first."""
    if isinstance(answer, dict):
        return {name: _form(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [_form(one) for one in answer[:1]]
    return {type(None): "null", bool: "flag", int: "number", float: "number"}.get(type(answer), "text")
