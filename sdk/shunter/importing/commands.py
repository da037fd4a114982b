"""Command lines that start a training: torchrun, accelerate, deepspeed, or Python itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from shunter.errors import ShunterError
from shunter.importing.accelerate import ACCELERATE_FLAGS, take_launch_options
from shunter.importing.notes import Imported, Kind
from shunter.importing.options import split_options

_PYTHON: Final = re.compile(r"^(.*/)?python(3(\.\d+)?)?$")
_SHORT: Final = {"m": "module", "r": "redirects", "t": "tee"}
_TORCHRUN_FLAGS: Final = ("standalone", "module", "no_python", "run_path", "virtual_local_rank", "use_env")
_RENDEZVOUS: Final = frozenset(
    {"rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "node_rank", "master_addr", "master_port", "local_addr"}
    | {"standalone", "role", "use_env"}
)
_DEEPSPEED_FLAGS: Final = ("module", "no_python", "no_local_rank", "no_ssh", "save_pid", "force_multi")
WHOLE_NODE: Final = 8
"""GPUs of a node where a launcher says "all of them"."""


def take_command(found: Imported, argv: Sequence[str]) -> None:
    """Set workload and resources from a command line.

    Raises:
        ShunterError: there is no program in it.
    """
    if not argv:
        raise ShunterError("the command is empty")
    name = PurePosixPath(argv[0]).name
    if _PYTHON.match(argv[0]):
        _take_python(found, argv)
    elif name in _LAUNCHERS:
        _LAUNCHERS[name](found, argv[1:])
    else:
        _take_any(found, argv)


def is_launch(argv: Sequence[str]) -> bool:
    """Whether this is a command line that `take_command` takes apart, and not just any program."""
    return bool(argv) and (PurePosixPath(argv[0]).name in _LAUNCHERS or bool(_PYTHON.match(argv[0])))


def _take_python(found: Imported, argv: Sequence[str]) -> None:
    rest = argv[1:]
    while rest and rest[0] in ("-u", "-O", "-B"):
        found.dropped(f"python {rest[0]}", "output is not buffered anyway" if rest[0] == "-u" else "not needed")
        rest = rest[1:]
    if len(rest) > 1 and rest[0] == "-m":
        launcher = _MODULES.get(rest[1])
        if launcher is not None:
            launcher(found, rest[2:])
        else:
            _take_program(found, rest[1:], module=True)
    elif rest and not rest[0].startswith("-"):
        _take_program(found, rest, module=False)
    else:
        _take_any(found, argv)
        return
    found.assumed("python", "resources", {"gpus": 1}, "one GPU; give `gpus` as many as the program uses")


def _take_torchrun(found: Imported, argv: Sequence[str]) -> None:
    options, rest = split_options(argv, _TORCHRUN_FLAGS, _SHORT)
    _take_nodes(found, options.pop("nnodes", "1"), options.pop("nproc_per_node", "1"))
    if (restarts := options.pop("max_restarts", None)) is not None:
        if restarts.isdecimal():
            found.mapped(f"--max-restarts {restarts}", "recovery.user_restarts", int(restarts))
        else:
            found.refused("--max-restarts", f"{restarts!r} is no number; set recovery.user_restarts")
    module, plain = "module" in options, "no_python" in options
    for option in sorted(options.keys() - {"module", "no_python"}):
        why = "the ranks of a job find each other by themselves" if option in _RENDEZVOUS else "the agent does this"
        found.dropped(f"--{option.replace('_', '-')}", why)
    if plain:
        found.mapped("--no-python", "workload", _script({"command": list(rest), "launcher": "torch"}))
    else:
        _take_program(found, rest, module=module)


def _take_accelerate(found: Imported, argv: Sequence[str]) -> None:
    if not argv or argv[0] != "launch":
        raise ShunterError("of accelerate, `accelerate launch` starts a training")
    options, rest = split_options(argv[1:], ACCELERATE_FLAGS, _SHORT)
    module, plain = "module" in options, "no_python" in options
    take_launch_options(found, {name: value for name, value in options.items() if name not in ("module", "no_python")})
    if plain:
        found.mapped("--no_python", "workload", _script({"command": list(rest), "launcher": "torch"}))
    else:
        _take_program(found, rest, module=module)


def _take_deepspeed(found: Imported, argv: Sequence[str]) -> None:
    options, rest = split_options(argv, _DEEPSPEED_FLAGS, {**_SHORT, "i": "include", "e": "exclude", "H": "hostfile"})
    _take_nodes(found, options.pop("num_nodes", "1"), options.pop("num_gpus", "gpu"))
    for option in sorted(options.keys() - {"module", "no_python"}):
        found.dropped(f"--{option}", "the ranks of a job find each other by themselves")
    arguments = list(rest)
    if "--deepspeed_config" in arguments or "--deepspeed" in arguments:
        option = "--deepspeed_config" if "--deepspeed_config" in arguments else "--deepspeed"
        place = arguments.index(option) + 1
        if place < len(arguments) and arguments[place].endswith(".json"):
            found.mapped(
                f"{option} {arguments[place]}", "strategy", {"kind": "own", "deepspeed_file": arguments[place]}
            )
            arguments[place] = "${deepspeed_config}"
    _take_program(found, arguments, module="module" in options)


def _take_nodes(found: Imported, nodes: str, per_node: str) -> None:
    """`--nnodes 2 --nproc-per-node 8`; ranges and words included."""
    least, _, most = nodes.partition(":")
    number = most or least
    if most and most != least:
        found.dropped(f"--nnodes {nodes}", f"a job runs on a fixed number of nodes; {most} are asked for")
    asked = found.get("resources.nodes") or 1
    on_nodes = _number(number) or asked
    if on_nodes < asked:
        found.refused(
            f"{asked} nodes",
            f"the command starts a gang on {on_nodes}, so each would train by itself; to train over all of them set "
            f"resources.nodes to {asked}",
        )
    on_each = _number(per_node) or found.get("resources.gpus_per_node") or (1 if per_node == "cpu" else WHOLE_NODE)
    found.on_cpus = found.on_cpus or per_node == "cpu"
    if _number(number) and _number(per_node):
        found.ranks(f"{nodes} x {per_node} ranks", on_nodes, on_each)
    else:
        why = f"{on_nodes} nodes with {on_each} ranks each; the command does not give these numbers"
        found.ranks(f"{nodes} x {per_node} ranks", on_nodes, on_each, kind=Kind.ASSUMED, why=why)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _take_program(found: Imported, argv: Sequence[str], *, module: bool) -> None:
    program, *arguments = argv
    if not module and not program.endswith(".py"):
        raise ShunterError(f"{program} is no Python file", hint="a module is started with -m")
    workload: dict[str, Any] = {"entrypoint": program, **({"module": True} if module else {})}
    if arguments:
        workload["arguments"] = arguments
    found.mapped(program, "workload", _script(workload))


def _take_any(found: Imported, argv: Sequence[str]) -> None:
    found.mapped(argv[0], "workload", _script({"command": list(argv), "launcher": "plain"}))
    found.assumed(argv[0], "resources", {"gpus": 1}, "one GPU; give `gpus` as many as the program uses")


def _script(workload: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "script", **workload}


_Take = Callable[[Imported, Sequence[str]], None]
_LAUNCHERS: Final[Mapping[str, _Take]] = {
    "torchrun": _take_torchrun,
    "accelerate": _take_accelerate,
    "deepspeed": _take_deepspeed,
}
_MODULES: Final[Mapping[str, _Take]] = {
    "torch.distributed.run": _take_torchrun,
    "torch.distributed.launch": _take_torchrun,
    "accelerate.commands.launch": lambda found, argv: _take_accelerate(found, ["launch", *argv]),
    "deepspeed.launcher.runner": _take_deepspeed,
}
