"""The clouds: what each plugin can do, what it was tested against, and its settings, from what the plugins declare."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from attribute_docs import attribute_docs
from pydantic import BaseModel
from settings_page import default_of
from shunter_providers.contract import Capabilities, SelfStop
from shunter_providers.plugin_settings import Variables
from tables import table

_PYPROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"

_KIT: Final = "the whole kit; jobs with real agents over a real sshd"
TESTED_AGAINST: Final[Mapping[str, str]] = {
    "local": "this machine",
    "simulated": "itself, with bare nodes and with real agents",
    "ssh": "real sshd on hosts in network namespaces",
    "coreweave": "the fake of the kube API with nodes labelled as CKS labels them, the whole kit; not verified: the "
    "labels of GPU models, and the ids of instances other than H100",
    "kubernetes": "a stateful fake of the kube API over HTTP with a scheduler and strict fields, the whole kit; jobs "
    "with real agents; kmock",
    "digitalocean": f"a stateful fake of its API v2 over HTTP, {_KIT}; not verified: its words for want of money, and "
    "that root's password does not ask to be changed",
    "aws": f"a stateful fake of EC2's query API over HTTP that checks signatures, {_KIT}; moto's server; botocore's "
    "model of EC2, for requests and answers",
    "azure": f"a stateful fake of the Resource Manager and the retail prices over HTTP, {_KIT}; not verified: its "
    "words where parts of a node are still in use",
    "gcp": f"a stateful fake of the Compute API v1 over HTTP that checks the sign-in's signature, {_KIT}; Google's "
    "description of the API, for requests and answers; not verified: its words for want of billing",
    "hetzner-robot": f"a stateful fake of its webservice over HTTP, {_KIT}; not verified: its words for want of stock, "
    "and which systems bring a driver",
    "lambda": f"a stateful fake of its API 1.8 over HTTP, {_KIT}, and jobs whose agent the provider starts",
    "paperspace": f"a stateful fake of its API v1 over HTTP, {_KIT}; not verified: its words for want of room, quota "
    "and money, its limit of calls, the unit of its rates, and how long a script may be",
    "ovh": f"a stateful fake of Keystone, nova, glance, neutron and the price list over HTTP, {_KIT}; a real Keystone "
    "30, nova 34 and placement 16 with a fake hypervisor, the kit as far as they can play it; the fake's nova is held "
    "to what the real one answers; not verified: the name of the image with NVIDIA's driver",
    "runpod": f"a stateful fake of its API v2 over HTTP, {_KIT}, and jobs whose agent the provider starts",
    "vast": f"a stateful fake of its API over HTTP, {_KIT}; not verified: its words for want of credit and for a bid "
    "that is too low, and how an image's sshd takes the host key",
}
"""Every plugin has a row. `whole kit`: every fault of `shunter_providers.testing`."""

_STARTERS: Final = {
    "ssh": "the service, over SSH",
    "exec": "the service, inside the container",
    "launch": "the provider",
    "user_data": "the provider, by user data",
}
_STOPS: Final = {
    SelfStop.ENDS_BILLING: "ends its bill",
    SelfStop.STOPS_COMPUTE: "bills on, for less",
    SelfStop.NONE: "bills on",
}

_IDEMPOTENCY: Final = {
    "token": "token: a create may be sent again",
    "unique_name": "unique name: a create may be sent again",
    "search_only": "none: searched by name before anything else",
}
_HEAD: Final = """# Providers

A job runs on the nodes of configured **instances** of provider plugins. Several instances of one plugin are several
accounts, regions or pools, each with its own credentials, health, pace and pause:

```toml
[providers.runpod]                    # the plugin is the instance's own name

[providers.runpod-research]
plugin = "runpod"
spend_frozen = true                   # makes nothing that bills until this goes; `paused` makes nothing at all

[providers.runpod-research.settings]
disk_gib = 200
```

Credentials stand in `[providers.NAME.settings]`, or in the variable `SHUNTER_<NAME>_<SETTING>`
(`SHUNTER_RUNPOD_RESEARCH_API_KEY`); the instance that bears its plugin's name also takes the vendor's own variables. No
log, answer or error shows them.

- `shunter provider list`: plugins that are installed, instances that are configured, what is wrong with each.
- `shunter provider check NAME`: plugin and settings; `--live` asks the provider and costs nothing; `--spend` runs one
  small node through its life.
- `shunter offers`, `GET /v1/offers`: what all of them offer, with the age and error of each.
- `shunter providers`, `GET /v1/providers`: how each is, and who you are there.

A plugin of your own is an afternoon: [write your own](write-your-own.md).

Prices come from the provider's API where it tells them, else from a bundled catalogue; those are marked with the day
they were read and how sure they are, and a live price always wins. A region's country is known or it is empty, and a
job that demands a jurisdiction never runs where it is empty.
"""


def text() -> str:
    """The page."""
    plugins = dict(_plugins())
    headings = (
        *("plugin", "nodes", "`environment.image`", "capacity", "create calls", "prices", "joins nodes"),
        "starts the agent",
        *("a node that stops itself", "console", "pace", "tested against"),
    )
    parts = [_HEAD, "## What each can do\n", *table(headings, (_row(name, kind) for name, kind in plugins.items())), ""]
    for name, kind in plugins.items():
        model = _settings_of(kind)
        if model is not None:
            parts += [f"## Settings of `{name}`\n", f"In `[providers.NAME.settings]`.{_options(kind)}\n"]
            parts += [*table(("setting", "variable", "default", "meaning"), _settings(name, model)), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def _plugins() -> Iterator[tuple[str, Any]]:
    published = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]["shunter.providers"]
    for name, place in sorted(published.items()):
        module, _, attribute = place.partition(":")
        yield name, getattr(importlib.import_module(module), attribute)


def _row(name: str, kind: Any) -> tuple[str, ...]:
    declared: Capabilities = kind.capabilities
    pace = "; ".join(
        f"{rate.calls} in {rate.per_s:g} s{'' if rate.kind == 'any' else ' (creates)'}" for rate in declared.pacing
    )
    fee = "; a set-up fee each" if declared.spends_setup_fee else ""
    return (
        f"`{name}`",
        ", ".join(declared.kinds),
        _image(declared),
        ", ".join(capacity.replace("_", " ") for capacity in declared.capacities),
        _IDEMPOTENCY[declared.idempotency],
        ("nothing is billed" if not declared.bills else declared.price_source) + fee,
        declared.fabric,
        _starter(kind),
        _STOPS[declared.self_stop] if declared.bills else "-",
        "kept of a node that does not come up" if declared.console else "-",
        pace or "-",
        TESTED_AGAINST[name],
    )


def _image(declared: Capabilities) -> str:
    if not declared.runs_images:
        return "-"
    return "runs it, under docker" if declared.runs_images_by_docker else "boots it"


def _starter(plugin: Any) -> str:
    """Who starts the agent; an operator may leave it to some providers."""
    starter, told_by = _STARTERS[plugin.capabilities.bootstrap], getattr(_settings_of(plugin), "told_by", None)
    return f"{starter}, or {_STARTERS[told_by]} (`start_by`)" if told_by else starter


def _settings_of(plugin: Any) -> type[BaseModel] | None:
    """The settings of a cloud's plugin: the one model of its module that is named for it."""
    if not plugin.__module__.startswith("shunter_providers.clouds."):
        return None
    return _named(plugin, "Settings")


def _options(plugin: Any) -> str:
    model = _named(plugin, "Options")
    if model is None:
        return ""
    names = ", ".join(f"`{name}`" for name in model.model_fields)
    return f" A job may say in `placement.options.NAME`: {names}."


def _named(plugin: Any, ending: str) -> type[BaseModel] | None:
    module = importlib.import_module(plugin.__module__)
    name = plugin.__name__.removesuffix("Provider") + ending
    model: type[BaseModel] | None = getattr(module, name, None)
    return model


def _settings(plugin: str, model: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    says = attribute_docs(model)
    for name, field in model.model_fields.items():
        own = [variable for one in field.metadata if isinstance(one, Variables) for variable in one.names]
        variables = [f"SHUNTER_{plugin.upper().replace('-', '_')}_{name.upper()}", *own]
        yield f"`{name}`", ", ".join(f"`{one}`" for one in variables), default_of(field), says.get(name, "")
