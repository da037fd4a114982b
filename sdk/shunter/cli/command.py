"""What every command has in common: its options for the service and the output, and how its errors are told."""

from __future__ import annotations

import functools
import inspect
import json
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shunter.errors import ApiError, InvalidDocument, ShunterError, in_words

if TYPE_CHECKING:
    from shunter.client import Client

Url = Annotated[str | None, typer.Option("--url", help="Address of the service.", rich_help_panel="Service")]
ApiKey = Annotated[str | None, typer.Option("--api-key", help="Key of the service.", rich_help_panel="Service")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Use the service that runs on this data directory.", rich_help_panel="Service"),
]


class Output(StrEnum):
    """What a command prints."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"


AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, for programs: --output json.", rich_help_panel="Output")
]
OutputAs = Annotated[
    Output, typer.Option("--output", "-o", help="wide: all there is to a line.", rich_help_panel="Output")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell errors in full.", rich_help_panel="Output")]


@dataclass(frozen=True, slots=True)
class Context:
    """The common options of one command."""

    url: str | None = None
    api_key: str | None = None
    data_dir: Path | None = None
    json_asked: bool = False
    output: Output = Output.TEXT
    verbose: bool = False

    @property
    def as_json(self) -> bool:
        """Whether to print JSON."""
        return self.json_asked or self.output is Output.JSON

    @property
    def wide(self) -> bool:
        """Whether to print all there is to a line."""
        return self.output is Output.WIDE

    def client(self) -> Client:
        """A client for the service that the options, the environment or a data directory name."""
        from shunter.client import Client
        from shunter.retries import Retries

        return Client(self.url, self.api_key, data_dir=self.data_dir, retries=Retries(tell=_tell_pause))


def _tell_pause(error: ShunterError, pause_s: float) -> None:
    print(f"{error}; trying again in {pause_s:.0f} s", file=sys.stderr, flush=True)


_COMMON: typing.Final = (
    ("url", Url, None),
    ("api_key", ApiKey, None),
    ("data_dir", DataDir, None),
    ("json_asked", AsJson, False),
    ("output", OutputAs, Output.TEXT),
    ("verbose", Verbose, False),
)


def command(
    app: typer.Typer, name: str, *, panel: str, options_first: bool = False
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Register a function as a command. Its first parameter is the `Context`; it returns an exit code or None for 0.

    The common options are added to its own, and an error becomes one line and an exit code.

    Args:
        options_first: whether everything behind the first argument is an argument too, also what looks like an option.
    """
    settings = {"allow_interspersed_args": not options_first}

    def register(function: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**values: Any) -> None:
            context = Context(**{option: values.pop(option) for option, _, _ in _COMMON})
            raise typer.Exit(_guarded(context, lambda: function(context, **values)))

        # typer reads a command's options from its signature.
        signature = _with_common_options(function)
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        return app.command(name, rich_help_panel=panel, context_settings=settings)(run)

    return register


def _with_common_options(function: Callable[..., object]) -> inspect.Signature:
    hints = typing.get_type_hints(function, include_extras=True)
    _, *own = inspect.signature(function).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [one.replace(annotation=hints[one.name], kind=keyword) for one in own]
    common = [inspect.Parameter(option, keyword, default=value, annotation=kind) for option, kind, value in _COMMON]
    return inspect.Signature([*parameters, *common])


def _guarded(context: Context, function: Callable[[], int | None]) -> int:
    from shunter.cli import codes

    try:
        return function() or codes.ExitCode.SUCCEEDED
    except BrokenPipeError:
        raise
    except OSError as cause:  # a folder that cannot be written, a full disk
        error = ShunterError(f"{cause.filename or 'this machine'}: {cause.strerror or cause}")
        code = codes.ExitCode.FAILED
    except ShunterError as raised:
        error, code = raised, codes.of_error(raised)
    tell(error, as_json=context.as_json, verbose=context.verbose)
    return code


def tell(error: ShunterError, *, as_json: bool = False, verbose: bool = False, about: str = "") -> None:
    """Write an error to standard error: one line, or JSON; with `verbose` everything that is known about it.

    Args:
        about: which of several things it is about, where there are several.
    """
    if as_json:
        print(json.dumps(_as_data(error) | ({"about": about} if about else {})), file=sys.stderr)
    else:
        print(one_line(error, about), file=sys.stderr)
    if verbose and not as_json:
        for line in _details(error):
            print(f"  {line}", file=sys.stderr)


def one_line(error: ShunterError, about: str = "") -> str:
    """What is wrong, where, and the way out."""
    message, faults = str(error), _faults(error)
    if isinstance(error, ApiError) and error.slug == "invalid_parameters":
        faults = ()  # the message names all of them
    elif isinstance(error, ApiError) and faults:
        message = in_words(faults[0])
    if len(faults) > 1:
        message += f" (and {len(faults) - 1} more: -v shows them)"
    if about not in message:
        message = f"{about}: {message}"
    parts = [f"error: {message}", error.hint]
    return " ".join(" - ".join(part for part in parts if part).split())


def _faults(error: ShunterError) -> tuple[Any, ...]:
    return error.faults if isinstance(error, ApiError | InvalidDocument) else ()


def _details(error: ShunterError) -> list[str]:
    lines = [in_words(fault) for fault in _faults(error)]
    if isinstance(error, ApiError):
        lines.append(f"answer: {error.status} {error.slug}: {error}")
        lines += [f"request: {error.request_id}"] if error.request_id else []
    cause = error.__cause__
    while cause is not None:
        lines.append(f"cause: {type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return lines


def _as_data(error: ShunterError) -> dict[str, Any]:
    told: dict[str, Any] = {"error": type(error).__name__, "message": str(error), "hint": error.hint}
    told["errors"] = [{"pointer": fault.pointer, "detail": fault.detail} for fault in _faults(error)]
    if isinstance(error, ApiError):
        told |= {"status": error.status, "slug": error.slug, "request_id": error.request_id}
    return told
