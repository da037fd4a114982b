"""Commands that look over all jobs: `billing`, `costs`, `reaping`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shunter.cli import filters
from shunter.cli.codes import ExitCode
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter_schemas.api import CostGroup, Costs, Reaping

By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="WHAT",
        help="provider, job, project, created_by, day, label.KEY. Repeatable: each combination. Default: provider.",
    ),
]
Since = Annotated[str | None, typer.Option("--since", metavar="WHEN", help="From then on: 2h, 3d, 2026-11-30.")]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Before that. Default: now.")]
Most = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Groups to show; the rest is one line.")]
Confirm = Annotated[
    bool, typer.Option("--confirm", help="The ledger is complete: nodes that it does not know may be ended again.")
]
Hold = Annotated[
    str | None, typer.Option("--hold", metavar="REASON", help="Only report such nodes until somebody confirms.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "billing", panel="Service")(billing)
    command(app, "costs", panel="Service")(costs)
    command(app, "reaping", panel="Service")(reaping)


def billing(context: Context) -> int:
    """Show every node that bills now, and how sure that is; exits 1 where it is not known whether anything does."""
    from shunter.billing_words import line_of, sentences
    from shunter.cli import output

    with context.client() as client:
        found = client.billing()
    if context.as_json:
        output.print_json(found)
    else:
        if found.items:
            headings = ["NODE", "PROVIDER", "TYPE", "STATE", "AGE", "USD/H", "USD", "READ", "JOB"]
            output.print_table(headings, [line_of(node) for node in found.items], empty="")
        print(*sentences(found), sep="\n")
    return ExitCode.SUCCEEDED if found.confirmed else ExitCode.FAILED


def costs(context: Context, by: By = None, since: Since = None, until: Until = None, limit: Most = 100) -> None:
    """Show what things cost, from the ledger alone, in groups that add up to the total."""
    from shunter.cli import output

    with context.client() as client:
        found = client.costs(
            group_by=by or ("provider",),
            since=filters.moment_of(since, "--since"),
            until=filters.moment_of(until, "--until"),
            limit=limit,
        )
    if context.as_json:
        output.print_json(found)
        return
    _print_costs(found)


def reaping(context: Context, confirm: Confirm = False, hold: Hold = None) -> None:
    """Show, confirm or hold the ending of nodes that carry this installation's mark and that it does not know."""
    from shunter.cli import output

    if confirm and hold is not None:
        raise typer.BadParameter("give --confirm or --hold, not both")
    with context.client() as client:
        if hold is not None:
            client.hold_reaping(hold)
        found = client.confirm_reaping() if confirm else client.reaping()
    if context.as_json:
        output.print_json(found)
        return
    _print_reaping(found)


def _print_costs(found: Costs) -> None:
    from shunter.cli import output

    rows = [_cost_row(group, found.group_by) for group in found.groups]
    if found.others is not None:
        rows.append(["others", *[""] * (len(found.group_by) - 1), *_amounts(found.others)])
    headings = [*(name.upper() for name in found.group_by), "USD", "UNCONFIRMED", "NODE HOURS"]
    output.print_table(headings, rows, empty="nothing cost anything")
    output.say(f"total {found.total_usd:.6f} USD until {output.clock(found.to)}")


def _cost_row(group: CostGroup, group_by: tuple[str, ...]) -> list[str]:
    return [*(group.by.get(name) or "-" for name in group_by), *_amounts(group)]


def _amounts(group: CostGroup) -> list[str]:
    return [f"{group.usd:.6f}", f"{group.unconfirmed_usd:.6f}", f"{group.node_hours:.2f}"]


def _print_reaping(found: Reaping) -> None:
    from shunter.cli import output

    if found.mode == "ends":
        print("nodes that the ledger does not know are ended")
    else:
        print(f"nodes that the ledger does not know are only reported: {found.reason or 'held'}")
        output.say("once the ledger is complete, or they may go: shunter reaping --confirm")
    rows = [
        [one.provider, one.handle, one.token or "-", one.condition, _rate(one.usd_per_hour)] for one in found.strangers
    ]
    output.print_table(["PROVIDER", "HANDLE", "TOKEN", "CONDITION", "USD/H"], rows, empty="there are none")


def _rate(usd_per_hour: float | None) -> str:
    return "?" if usd_per_hour is None else f"{usd_per_hour:.2f}"
