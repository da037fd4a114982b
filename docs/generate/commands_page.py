"""The command line, from its own descriptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, get_args

from shunter.cli.codes import ExitCode
from shunter.cli.main import app
from tables import table
from typer.main import get_command

_HEAD = """# The command line

`--help` behind a command says the same as this page. The commands find a local service by themselves: by `SHUNTER_URL`
and `SHUNTER_API_KEY`, else by the data directory that `SHUNTER_DATA_DIR` names, `.shunter` here or in a folder above,
or `~/.shunter`. Results go to standard output, everything said beside them to standard error.
"""
_CODES = {
    ExitCode.SUCCEEDED: "done; with `watch` and `--watch`: the job succeeded",
    ExitCode.FAILED: "the job failed; `diff`: something differs; `doctor`: something is wrong; `plan`: nothing takes "
    "the job; `billing`: it is not known; `rehearse`: something was not proven",
    ExitCode.USAGE: "wrong arguments, a wrong document, or nothing of that id",
    ExitCode.CANCELLED: "the job was cancelled",
    ExitCode.UNREACHABLE: "no service, or none that can serve",
    ExitCode.INTERRUPTED: "Ctrl-C; the job goes on",
}
_COMMON = ("url", "api_key", "data_dir", "json_asked", "output", "verbose")


def text() -> str:
    """The page."""
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]  # a group
    codes = ((str(code.value), words) for code, words in _CODES.items())
    parts = [_HEAD, "## Exit codes\n", *table(("code", "means"), codes), ""]
    first = next(command for command in commands.values() if _own_and_common(command)[1])
    parts += ["## Options of every command\n", *table(("option", "what"), map(_option, _own_and_common(first)[1])), ""]
    panels: dict[str, list[str]] = {}
    for name, command in commands.items():
        panels.setdefault(command.rich_help_panel or "Service", []).append(name)
    for panel, names in panels.items():
        parts.append(f"## {panel}\n")
        for name in names:
            parts += _command(name, commands[name])
    return "\n".join(parts).rstrip() + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    own, _ = _own_and_common(command)
    arguments = [one for one in own if one.param_type_name == "argument"]
    options = [one for one in own if one.param_type_name == "option"]
    shown = " ".join([f"shunter {name}", *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    yield f"### {name}\n\n{_prose(command.help)}\n\n```text\n{shown}\n```\n"
    if arguments or options:
        rows = [(f"`{_argument(one)}`", _prose(getattr(one, "help", ""))) for one in arguments]
        yield from table(("argument or option", "what"), [*rows, *map(_option, options)])
        yield ""
    if command.context_settings.get("ignore_unknown_options"):
        yield f"Its options are its program's own: `shunter {name} --help`.\n"


def _own_and_common(command: Any) -> tuple[list[Any], list[Any]]:
    shown = [one for one in command.params if one.name != "help"]
    common = [one for one in shown if one.name in _COMMON]
    return [one for one in shown if one not in common], common


def _option(option: Any) -> tuple[str, str]:
    names = ", ".join(f"`{name}`" for name in option.opts)
    takes = "" if option.is_flag else f" `{_choices(option) or _metavar(option)}`"
    return names + takes, _prose(option.help)


def _choices(option: Any) -> str:
    """The words that an option takes, if there are only a few."""
    kinds = [option.type_descriptor.annotation, *get_args(option.type_descriptor.annotation)]
    return next(
        ("/".join(kind) for kind in kinds if isinstance(kind, type) and issubclass(kind, StrEnum)),
        "",
    )


def _argument(argument: Any) -> str:
    """As usages show it: in brackets where it may be left out, with dots where there may be several."""
    name = _metavar(argument)
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs != 1 else "")


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper().replace("_", "-"))


def _prose(words: str | None) -> str:
    """Text of a help as Markdown: what could be read as markup is shown as it is."""
    return re.sub(r"([<>*_])", r"\\\1", " ".join((words or "").split()))
