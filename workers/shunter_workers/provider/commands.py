"""The commands of `shunter provider`. Exit codes: 0 all is well, 1 a check failed, 2 the command line is wrong."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from shunter_providers.bounded import bounded
from shunter_providers.checking import Finding, cheapest, check_live, check_offline, check_spending
from shunter_providers.contract import Instance, OfferQuery, Provider, ProviderError
from shunter_providers.redaction import secrets_of
from shunter_providers.registry import installed_plugins, load_plugin
from shunter_providers.skeleton import BadName, write_skeleton

from shunter_workers.provider.configured import by_name, configured

app = typer.Typer(
    help="Provider plugins: list them, check one, begin a new one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """The installed plugins and the configured instances, and what is wrong with each."""
    rows = [*_plugin_rows(), *_instance_rows()]
    if as_json:
        print(json.dumps(rows))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{row['kind']:8}  {row['name']:{width}}  {row['state']}")


@app.command()
def check(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A configured instance, or a plugin whose variables are set.")
    ],
    live: Annotated[bool, typer.Option("--live", help="Ask the provider; costs nothing.")] = False,
    spend: Annotated[bool, typer.Option("--spend", help="Run one small node through its life; costs money.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before money is spent.")] = False,
    as_json: AsJson = False,
) -> None:
    """Whether an instance can be used: its plugin and settings, with --live its credentials and offers."""
    instance = _instance(name)
    findings = list(check_offline(instance))
    _print(findings, as_json)
    if (live or spend) and all(finding.ok is not False for finding in findings):
        findings += asyncio.run(_ask(instance, spend=spend, agreed=yes, as_json=as_json))
    raise typer.Exit(1 if any(finding.ok is False for finding in findings) else 0)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The plugin's name: small letters, digits and hyphens.")],
    folder: Annotated[Path | None, typer.Option(help="Where to write it; by default ./NAME_provider.")] = None,
) -> None:
    """Write a plugin that works, over a toy cloud that it brings along: change it into yours."""
    target = folder or Path(f"{name.replace('-', '_')}_provider")
    try:
        written = write_skeleton(name, target)
    except (BadName, FileExistsError) as exc:
        _refuse(str(exc))
    for path in written:
        print(path)
    print(f"next: cd {target} && pip install -e . && pytest && shunter provider check {name}")


def _plugin_rows() -> list[dict[str, str]]:
    rows = []
    for plugin in installed_plugins():
        try:
            load_plugin(plugin)
            state = "loads"
        except ProviderError as exc:
            state = exc.detail
        rows.append({"kind": "plugin", "name": plugin, "state": state})
    return rows


def _instance_rows() -> list[dict[str, str]]:
    try:
        found = configured()
    except ValueError as exc:
        _refuse(str(exc))
    rows = []
    for name, (instance, hold) in found.items():
        wrong = next((one.words for one in check_offline(instance) if one.ok is False), "")
        state = wrong or hold or "ready to be asked (shunter provider check --live)"
        rows.append({"kind": "instance", "name": name, "state": state})
    return rows


def _instance(name: str) -> Instance:
    try:
        instance = by_name(name)
    except ValueError as exc:
        _refuse(str(exc))
    if instance is None:
        _refuse(f"there is no instance and no plugin {name!r} (plugins: {', '.join(installed_plugins())})")
    return instance


async def _ask(instance: Instance, *, spend: bool, agreed: bool, as_json: bool) -> list[Finding]:
    provider = bounded(instance.name, load_plugin(instance.plugin)(instance), secrets=secrets_of(instance))
    findings: list[Finding] = []
    try:
        async for finding in _live(provider, spend=spend, agreed=agreed):
            _print([finding], as_json)
            findings.append(finding)
    finally:
        await provider.close()
    return findings


async def _live(provider: Provider, *, spend: bool, agreed: bool) -> AsyncIterator[Finding]:
    healthy = True
    async for finding in check_live(provider):
        healthy = healthy and finding.ok is not False
        yield finding
    if spend and healthy and (agreed or await _is_agreed(provider)):
        async for finding in check_spending(provider):
            yield finding


async def _is_agreed(provider: Provider) -> bool:
    offer = cheapest(await provider.offers(OfferQuery()))
    if offer is None:
        return True
    question = f"Make one {offer.instance_type} in {offer.region} at {offer.price.usd_per_hour:.2f} USD an hour?"
    return await asyncio.to_thread(typer.confirm, question, err=True)


def _print(findings: list[Finding], as_json: bool) -> None:
    for finding in findings:
        if as_json:
            print(json.dumps(asdict(finding)), flush=True)
        else:
            mark = {True: "ok", False: "FAILED", None: "note"}[finding.ok]
            print(f"{mark:6}  {finding.check}: {finding.words} ({finding.took_s:.1f} s)", flush=True)


def _refuse(words: str) -> NoReturn:
    print(f"error: {words}", file=sys.stderr)
    raise typer.Exit(2)
