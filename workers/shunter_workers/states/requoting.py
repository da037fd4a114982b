"""The price is read again just before a node is made: one that is dearer than planned is not made, and planned anew.

A plan is made of offers that are some seconds old, and a gang of many nodes takes minutes to be made. What the user
agreed to is the plan's price and a tolerance (`price_tolerance` of the workers' settings), and the document's own caps,
which have no tolerance.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from shunter_planner.values import offer_from_json
from shunter_providers.contract import Offer, Scope
from shunter_schemas.states import NodeState, Reason
from shunter_store.job.lifecycle import Trigger
from shunter_store.node.ledger import NodeRow

from shunter_workers.decisions import Release, Settle, Tell
from shunter_workers.states.ends import lose
from shunter_workers.states.giving_up import plan_anew
from shunter_workers.view import View

GONE_FOR_S: Final = 120.0
"""How long an offer is passed over that is not listed any more."""


def refuse_dearer(view: View, now: datetime, node: NodeRow) -> Settle | None:
    """What is done in the place of the create call of this node; None: it is as planned, or could not be asked."""
    if view.requoted is None:
        return None
    planned, found = offer_from_json(node.offer), view.requoted.offer
    if found is None:
        if any(member.state is not NodeState.INTENDED for member in view.members):
            return None  # the rest of a gang may be the last that there was: the call itself will tell
        detail = f"{_name(planned)} is not offered any more"
        return _without_it(view, now, node, detail, {}, for_s=GONE_FOR_S)
    dearer = _too_dear(view, planned, found)
    if dearer is None:
        return None
    prices = {"planned_usd_per_hour": planned.price.usd_per_hour, "usd_per_hour": found.price.usd_per_hour}
    return _without_it(view, now, node, dearer, prices, for_s=0.0)


def price_now(view: View) -> float | None:
    """USD an hour that the node about to be made will bill; None: as planned."""
    return view.requoted.offer.price.usd_per_hour if view.requoted is not None and view.requoted.offer else None


def _too_dear(view: View, planned: Offer, found: Offer) -> str | None:
    before, now = planned.price.usd_per_hour, found.price.usd_per_hour
    rise, tolerance = _rise(before, now), view.price_tolerance
    if rise > tolerance + 1e-9:
        return (
            f"{_name(planned)} costs {now:.4g} USD an hour now, {100 * rise:.0f} % more than the {before:.4g} that was "
            f"planned; at most {100 * tolerance:g} % more is taken (the setting price_tolerance)"
        )
    fee, planned_fee = found.price.setup_usd, planned.price.setup_usd
    if fee > planned_fee * (1 + tolerance) + 1e-9:
        return f"{_name(planned)} costs {fee:.2f} USD to set up now, {planned_fee:.2f} were planned"
    limits, rate = view.document.limits, _gang_rate(view, now)
    if limits.max_usd_per_hour is not None and rate > limits.max_usd_per_hour + 1e-9:
        return f"the gang would cost {rate:.2f} USD an hour, limits.max_usd_per_hour is {limits.max_usd_per_hour:.2f}"
    low = view.plan.prediction.cost_low_usd if view.plan.prediction is not None else None
    if rise > 0 and limits.max_cost_usd is not None and low is not None and not view.memory.started:
        dearer = low * now / before
        if low <= limits.max_cost_usd < dearer:
            return f"at least {dearer:.2f} USD are predicted now, limits.max_cost_usd is {limits.max_cost_usd:.2f}"
    return None


def _without_it(
    view: View, now: datetime, node: NodeRow, detail: str, prices: dict[str, Any], *, for_s: float
) -> Settle:
    """Plan anew, and for a job that ran before: somewhere as a whole, since its nodes belong to the old price."""
    told = ("node.price_refused", {"node_rank": node.rank, "provider": node.instance, "detail": detail, **prices})
    if not view.memory.started:
        decision = plan_anew(view, now, node, detail, for_s)
        decision.change.events[:0] = [told]
        return decision
    decision = lose(view, now, str(Reason.NO_CAPACITY), detail)
    decision.change.events[:0] = [told]
    if decision.change.trigger is not Trigger.NODE_LOST:
        return decision
    everyone = [member.id for member in view.members]
    others = [write for write in decision.writes if not isinstance(write, Tell | Release)]
    blocks = {"blocks": [*view.memory.blocks, _block(node, detail, now, for_s)]} if for_s else {}
    memory = {**(decision.memory or {}), **blocks}
    return replace(decision, writes=[Release(everyone, detail), *others], memory=memory)


def _block(node: NodeRow, detail: str, now: datetime, for_s: float) -> dict[str, Any]:
    return {
        "instance": node.instance,
        "scope": str(Scope.OFFER),
        "reason": str(Reason.NO_CAPACITY),
        "detail": detail,
        "instance_type": node.offer.get("instance_type", ""),
        "region": node.offer.get("region", ""),
        "until": now.timestamp() + for_s,
    }


def _gang_rate(view: View, usd_per_hour: float) -> float:
    """Of the gang once every node that is missing is made at this price."""
    made = [node for node in view.members if node.state is not NodeState.INTENDED]
    return sum(node.billed_usd_per_hour for node in made) + (view.plan.num_nodes - len(made)) * usd_per_hour


def _rise(before: float, now: float) -> float:
    if now <= before:
        return 0.0
    return now / before - 1 if before > 0 else float("inf")


def _name(offer: Offer) -> str:
    return " ".join(part for part in (offer.instance_type, offer.region and f"in {offer.region}") if part)
