"""A job in full, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from shunter_schemas.api import Job, JobNode, JobPlan

from shunter.cli.output import clock
from shunter.display import came_back, duration, status_line


def describe(job: Job, *, wide: bool = False) -> list[str]:
    """The job by topics; topics that it does not have are left out. `wide`: its nodes by their providers' names too."""
    facts = [
        ("name", job.name),
        ("state", status_line(job)),
        ("message", job.message or ""),
        ("labels", ", ".join(f"{name}={value}" for name, value in job.labels.items())),
        ("created", f"{clock(job.created_at)}{f' by {job.created_by}' if job.created_by else ''}"),
        ("retry of", _origin(job) if job.retry_of else ""),
        ("started", clock(job.started_at) if job.started_at else ""),
        ("finished", clock(job.finished_at) if job.finished_at else ""),
        ("plan", _plan(job.plan) if job.plan else ""),
        ("starts", str(job.generation) if job.generation > 1 else ""),
        ("cost", f"{job.cost.usd:.2f} USD, now {job.cost.usd_per_hour:.2f} USD/h" if job.cost.usd else ""),
        ("forecast", _forecast(job)),
        ("predicted", _predicted(job.plan) if job.plan else ""),
    ]
    lines = [job.id]
    for name, text in facts:
        first, *rest = text.splitlines() or [""]
        if text:
            lines += [f"  {name:<9} {first}", *(f"  {'':<9} {line}" for line in rest)]
    return [*lines, *_attempts(job), *_history(job), *_nodes(job, wide=wide)]


def _plan(plan: JobPlan) -> str:
    ranks = f"{plan.num_nodes} x {plan.ranks_per_node} ranks" if plan.num_nodes > 1 else f"{plan.ranks_per_node} ranks"
    where = " ".join(part for part in (plan.provider, plan.instance_type, plan.region) if part)
    return f"{plan.strategy} over {ranks} on {where}" + (f" ({plan.why})" if plan.why else "")


def _forecast(job: Job) -> str:
    found = job.cost.forecast
    if found is None:
        return ""
    if found.cap_at_step is None or found.usd_above_cap is None:
        return f"{found.usd:.2f} USD in all"
    cap = f"the cap is reached at step {found.cap_at_step:,} of {found.total_steps:,}"
    return f"{cap}; {found.usd_above_cap:.2f} USD more finishes (shunter update {job.id} --limit max_cost_usd=…)"


def _predicted(plan: JobPlan) -> str:
    """Predicted against measured."""
    measured, words = plan.measured, []
    if plan.time is not None:
        speed = f"{measured.tokens_per_s:,.0f}" if measured and measured.tokens_per_s is not None else "-"
        words.append(f"{plan.time.tokens_per_s:,.0f} tokens/s (measured {speed})")
    if plan.memory is not None:
        peak = f"{measured.peak_memory_gib:.2f}" if measured and measured.peak_memory_gib is not None else "-"
        words.append(f"{plan.memory.need_gib:.2f} GiB a rank (measured {peak})")
    return ", ".join(words)


def _history(job: Job) -> Iterator[str]:
    for before, after in zip(job.transitions, [*job.transitions[1:], None], strict=True):
        lasted = f"for {duration((after.at - before.at).total_seconds())}" if after else ""
        yield f"  {clock(before.at)}  {before.to:<13}{before.reason or '':<20} {lasted}".rstrip()


def _attempts(job: Job) -> Iterator[str]:
    if len(job.attempts) < 2:
        return
    for attempt in job.attempts:
        why = (attempt.message or attempt.reason or "").partition("\n")[0]
        step = f"step {attempt.last_step}" if attempt.last_step is not None else ""
        yield f"  start {attempt.generation}  {clock(attempt.started_at)}  {attempt.how:<8} {step:<12} {why}".rstrip()
        if attempt.recovery is not None:
            yield f"    {came_back(attempt.recovery)}"


def _nodes(job: Job, *, wide: bool) -> Iterator[str]:
    for node in job.nodes:
        yield f"  node {node.rank}  {node.state:<10} {node.token}  {_where(node)}".rstrip()
        if wide:
            price = f"{node.usd_per_hour:.2f} USD/h" if node.usd_per_hour else ""
            times = [("ready", node.ready_at), ("seen", node.last_seen_at), ("released", node.released_at)]
            facts = [node.handle, node.region, price, *(f"{name} {clock(at)}" for name, at in times if at)]
            yield f"    {'  '.join(fact for fact in facts if fact)}"


def _origin(job: Job) -> str:
    step = "" if job.resumes_from_step is None else f" from step {job.resumes_from_step}"
    return f"{job.retry_of}{step}"


def _where(node: JobNode) -> str:
    return " ".join(part for part in (node.provider, node.instance_type, node.hostname) if part)
