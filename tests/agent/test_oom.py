"""Ranks that the kernel killed for want of main memory, told by its counters."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from shunter_agent.gang import Gang
from shunter_agent.keeping.layout import Layout
from shunter_agent.launching.launchers import Process
from shunter_agent.reporting.oom import KillWatch, kills
from shunter_agent.reporting.verdict import Verdict, judge
from support.waiting import wait_until


def test_the_counters_of_container_and_machine_are_summed(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\noom 2\noom_kill 2\noom_group_kill 0\n")
    (tmp_path / "vmstat").write_text("nr_free_pages 12\noom_kill 5\nnuma_hit 7\n")
    (tmp_path / "odd").write_text("oom_kill many\n")

    files = [str(tmp_path / name) for name in ("memory.events", "vmstat", "odd", "missing")]

    assert kills(files) == 7


class Kernel:
    """Its counter and a clock, both moved by the test."""

    def __init__(self) -> None:
        self.killed, self.now = 4, 0.0
        self.watch = KillWatch(lambda: self.killed, lambda: self.now)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.watch.sample()


def test_a_kill_just_before_an_end_counts_and_one_long_before_does_not() -> None:
    kernel = Kernel()
    kernel.passes(5.0)
    before = kernel.watch.grew()
    kernel.killed += 1
    kernel.passes(1.0)
    just_now = kernel.watch.grew()
    kernel.passes(1.0)
    kernel.passes(1.0)

    assert (before, just_now, kernel.watch.grew()) == (False, True, False)


def ended_by(number: signal.Signals, folder: Path, kernel: Kernel, *, starved: bool) -> Verdict:
    """The verdict over a real process that this signal ended."""
    gang = Gang(Layout(str(folder)), 1, kernel.watch)
    argv = (sys.executable, "-c", "import time; time.sleep(600)")
    gang.start([Process(3, (3,), argv, {}, False)], str(folder))
    gang.poll()
    kernel.killed += starved
    gang.members[0].child.send_signal(number)
    wait_until(gang.poll, description="the process has ended", timeout_s=60)
    found = judge(gang.ends)
    assert found is not None
    return found


def test_a_rank_that_the_kernel_killed_ran_out_of_memory(tmp_path: Path) -> None:
    verdict = ended_by(signal.SIGKILL, tmp_path, Kernel(), starved=True)

    assert (verdict.rank, verdict.failure_class, verdict.reason) == (3, "user", "out_of_memory")
    headline, detail = verdict.message.splitlines()
    assert headline == "rank 3 was killed by SIGKILL"
    assert detail.startswith("The kernel killed it since main memory ran out: take smaller batches")


@pytest.mark.parametrize(("number", "starved"), [(signal.SIGKILL, False), (signal.SIGTERM, True)])
def test_any_other_kill_is_the_nodes(tmp_path: Path, number: signal.Signals, starved: bool) -> None:
    verdict = ended_by(number, tmp_path, Kernel(), starved=starved)

    assert (verdict.failure_class, verdict.reason) == ("node", "signal")
