"""Commands about the service and the installation: `providers`, `offers`, `doctor`, `completion`."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shunter.cli.codes import ExitCode
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter_schemas.api import OfferInfo, ProviderInfo


class Shell(StrEnum):
    """Shells that can be completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


WhichShell = Annotated[Shell, typer.Argument(metavar="SHELL", help="The shell.")]

GpuModel = Annotated[str | None, typer.Option("--gpu", metavar="MODEL", help="Only this model.")]
MinGpus = Annotated[int, typer.Option("--min-gpus", min=0, help="At least so many GPUs a node.")]
OfProvider = Annotated[str | None, typer.Option("--provider", help="Only this instance.")]
InRegion = Annotated[str | None, typer.Option("--region", help="Only this region.")]
InJurisdiction = Annotated[
    str | None, typer.Option("--jurisdiction", metavar="PLACE", help="Only there: EU, EEA or an ISO country code.")
]
OfCapacity = Annotated[str | None, typer.Option("--capacity", help="Only on_demand, spot or reserved.")]
RetryProvider = Annotated[
    str | None,
    typer.Option("--retry", metavar="NAME", help="First let jobs ask this instance for nodes again at once."),
]
OnlyAvailable = Annotated[bool, typer.Option("--available", help="Only what can be had now.")]
MostOffers = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many to show.")]

_MARKS: Final = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "providers", panel="Service")(providers)
    command(app, "offers", panel="Service")(offers)
    command(app, "doctor", panel="Service")(doctor)
    app.command("completion", rich_help_panel="Service")(completion)


def providers(context: Context, retry: RetryProvider = None) -> None:
    """List the configured provider instances and how they are."""
    from shunter.cli import output

    with context.client() as client:
        if retry is not None:
            client.retry_provider(retry)
        found = client.providers()
    if context.as_json:
        output.print_json_list(found)
        return
    headings = ["NAME", "PLUGIN", "STATUS", "BILLS", "READ", "DETAIL"]
    rows = [
        [p.name, p.plugin, p.status, "yes" if p.bills else "no", output.age(p.read_at), _how_it_is(p)] for p in found
    ]
    if context.wide:
        headings += ["ACCOUNT", "CAPABILITIES"]
        for row, p in zip(rows, found, strict=True):
            row += [p.account or "", " ".join(f"{name}={value}" for name, value in p.capabilities.items() if value)]
    output.print_table(headings, rows, empty="no providers")


def _how_it_is(provider: ProviderInfo) -> str:
    """What is wrong with it, or keeps it from making nodes; empty: nothing."""
    told = provider.refusal
    stands = told is not None and told.until is not None and told.until > datetime.now(UTC)
    until = f" (not asked again before {told.until:%H:%M:%S} UTC)" if told is not None and stands else ""
    refused = f"makes no nodes: {told.detail}{until}" if told is not None else ""
    return provider.detail or provider.held or refused


def offers(
    context: Context,
    gpu_model: GpuModel = None,
    min_gpus: MinGpus = 0,
    provider: OfProvider = None,
    region: InRegion = None,
    jurisdiction: InJurisdiction = None,
    capacity: OfCapacity = None,
    available: OnlyAvailable = False,
    limit: MostOffers = 50,
) -> None:
    """List what the providers offer, the cheapest for a GPU first."""
    from shunter.cli import output

    with context.client() as client:
        found = client.offers(
            provider=provider,
            gpu_model=gpu_model,
            min_gpus=min_gpus,
            region=region,
            jurisdiction=jurisdiction,
            capacity=capacity,
            available=available,
            limit=limit,
        )
    if context.as_json:
        output.print_json(found)
        return
    headings = ["PROVIDER", "TYPE", "GPUS", "REGION", "LAW", "USD/H", "CAPACITY", "AVAILABLE", "PRICE OF"]
    output.print_table(headings, [_offer_row(offer) for offer in found.items], empty="no offers")
    if len(found.items) < found.total:
        output.say(f"the first {len(found.items)} of {found.total}: --limit shows more")
    for source in found.sources:
        if source.status != "ok":
            age = "" if source.age_s is None else f"; its offers are {source.age_s:.0f} s old"
            print(f"{source.name}: {source.status}: {source.detail}{age}", file=sys.stderr)


def _offer_row(offer: OfferInfo) -> list[str]:
    gpus = f"{offer.gpus}x {offer.gpu_model} {offer.gpu_memory_gib:g} GiB" if offer.gpus else f"{offer.cpus} CPUs"
    price = offer.price
    read = "now" if price.live else f"{price.as_of} ({price.confidence})"
    return [
        offer.provider,
        offer.instance_type,
        gpus,
        offer.region,
        offer.jurisdiction or "?",
        f"{price.usd_per_hour:.2f}" if price.billed else "own",
        offer.capacity,
        offer.availability,
        read,
    ]


def doctor(context: Context) -> int:
    """Check this installation and the service, and say what to mend; exits 1 where something is wrong."""
    from shunter.cli import output
    from shunter.doctor import Verdict, examine

    found = []
    for one in examine(context.url, context.api_key, context.data_dir):
        found.append(one)
        if not context.as_json:
            fix = f"\n           {one.fix}" if one.fix else ""
            print(f"{_MARKS[one.verdict]}  {one.name}: {one.detail}{fix}", flush=True)
    problems = sum(one.verdict is Verdict.PROBLEM for one in found)
    if context.as_json:
        output.print_data([{**one._asdict(), "verdict": str(one.verdict)} for one in found])
    elif problems:
        output.say(f"{problems} to mend")
    return ExitCode.FAILED if problems else ExitCode.SUCCEEDED


def completion(shell: WhichShell) -> None:
    """Print what a shell needs to complete commands, options, states and job ids: eval "$(shunter completion bash)"."""
    # The protocol by which the shell's own script asks later; asked so, the program prints that script.
    environment = {**os.environ, "_SHUNTER_COMPLETE": f"source_{shell.value}"}
    os.execve(sys.executable, [sys.executable, "-m", "shunter"], environment)  # noqa: S606
