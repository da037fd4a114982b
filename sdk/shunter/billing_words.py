"""What bills, in sentences for people. None of them claims more than was seen."""

from __future__ import annotations

from collections.abc import Iterator

from shunter_schemas.api import FleetNode, FleetPage, ProviderReading, rfc3339


def sentences(page: FleetPage) -> Iterator[str]:
    """What bills in all, what is not known, and what the ledger does not know."""
    billing = [one for one in page.providers if one.bills]
    doubtful = [one for one in billing if one.status != "good"]
    read = [one for one in page.providers if one.status == "good"]
    strangers = [stranger for one in page.providers for stranger in one.strangers]
    if page.items:
        number = "1 node bills" if len(page.items) == 1 else f"{len(page.items)} nodes bill"
        yield f"{number} {sum(node.usd_per_hour for node in page.items):.2f} USD an hour"
    elif page.confirmed:
        yield f"nothing is billing: {'; '.join(_read(one) for one in read) or 'no provider is configured'}"
    else:
        yield "it is not known whether anything is billing"
    for one in doubtful:
        yield f"{one.provider}: {_doubt(one)}"
    if strangers:
        yield _strange(len(strangers), page.reaping)
    if page.reaping == "reports":
        yield "nodes that the ledger does not know are only reported, until: shunter reaping --confirm"


def line_of(node: FleetNode) -> list[str]:
    """One node as a line of a table."""
    return [
        node.token,
        node.provider,
        node.instance_type,
        str(node.state),
        span(node.age_s),
        f"{node.usd_per_hour:.2f}",
        f"{node.cost_usd:.6f}",
        "never" if node.read_at is None else rfc3339(node.read_at),
        f"{node.job} {node.job_name or ''}".strip(),
    ]


def span(seconds: float) -> str:
    """`14 s`, `3 min`, `2.5 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _read(one: ProviderReading) -> str:
    free = "" if one.bills else " (costs nothing)"
    return f"{one.provider} read {span(one.age_s or 0.0)} ago{free}"


def _doubt(one: ProviderReading) -> str:
    last = "never read" if one.read_at is None else f"last read {span(one.age_s or 0.0)} ago, at {rfc3339(one.read_at)}"
    if one.status == "failing" and one.failing_since is not None:
        return f"cannot be read since {rfc3339(one.failing_since)} ({one.error}); {last}"
    if one.status == "not_configured":
        rows = "1 row" if one.billing_nodes == 1 else f"{one.billing_nodes} rows"
        return f"is not configured any more, and {rows} of the ledger cannot be closed without it; {last}"
    return f"{last}: no worker has read it since" if one.read_at is not None else f"{last}; does a worker run?"


def _strange(number: int, reaping: str) -> str:
    which = "1 node that the ledger does not know" if number == 1 else f"{number} nodes that the ledger does not know"
    return f"{which}: " + ("about to be ended" if reaping == "ends" else "shunter reaping shows them")
