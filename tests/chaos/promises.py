"""The checker: every promise, by its name, and what of it a run has broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from chaos import of_gangs, of_jobs, of_metrics, of_nodes
from chaos.evidence import Evidence

PROMISES: Final[tuple[Callable[[Evidence], Iterator[str]], ...]] = (
    of_jobs.no_job_is_lost,
    of_jobs.healthy_jobs_succeed,
    of_jobs.no_training_is_disturbed,
    of_jobs.no_cancel_is_lost,
    of_jobs.a_cancel_is_never_taken_for_a_failure,
    of_jobs.events_are_gapless,
    of_jobs.every_move_is_legal,
    of_jobs.every_fence_grows,
    of_nodes.no_node_is_left,
    of_nodes.a_row_before_every_create,
    of_nodes.no_row_closes_early,
    of_nodes.one_row_for_a_handle,
    of_nodes.twins_are_ended,
    of_nodes.the_ledger_is_the_bill,
    of_nodes.budgets_hold,
    of_gangs.one_gang_is_ordered,
    of_gangs.one_gang_at_a_time,
    of_gangs.every_log_byte_once,
    of_metrics.every_metric_point_once,
    of_gangs.every_journal_is_whole,
)


def broken(found: Evidence) -> list[str]:
    """Every violation, in words, each with the name of its promise."""
    return [f"{promise.__name__}: {fault}" for promise in PROMISES for fault in promise(found)]
