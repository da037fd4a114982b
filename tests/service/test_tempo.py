"""The tempo of nodes follows the load of the process."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from shunter_service.node.tempo import Tempo, machine_used_s
from shunter_store.installation.settings import Pace


@dataclass
class Machine:
    """A clock and a processor that a test moves."""

    now: float = 0.0
    used_s: float = 0.0
    all_used_s: float = 0.0

    def work(self, share: float, seconds: float = 1.0, *, full: float = 0.5) -> None:
        self.now += seconds
        self.used_s += share * seconds
        self.all_used_s += full * seconds


def tempo_on(machine: Machine, pace: Pace) -> Tempo:
    return Tempo(pace, clock=lambda: machine.now, processor=lambda: machine.used_s, machine=lambda: machine.all_used_s)


def test_an_idle_process_keeps_the_pace_of_the_settings() -> None:
    machine, pace = Machine(), Pace()
    tempo = tempo_on(machine, pace)

    machine.work(0.1)

    assert tempo.pace() == pace


def test_a_busy_process_asks_nodes_to_come_less_often_but_never_less_than_the_slowest_pace() -> None:
    machine, pace = Machine(), Pace(quiet_s=5.0, slowest_s=8.0)
    tempo = tempo_on(machine, pace)

    for _ in range(20):
        machine.work(0.95)
        tempo.pace()

    slowed = tempo.pace()
    assert (slowed.quiet_s, slowed.watched_s) == (8.0, 8.0)
    assert pace.changing_s < slowed.changing_s <= 8.0


def test_slow_answers_count_as_load_too() -> None:
    machine, pace = Machine(), Pace()
    tempo = tempo_on(machine, pace)

    machine.work(0.1)
    tempo.note(2.0)

    assert tempo.pace().quiet_s > pace.quiet_s


def test_a_full_machine_slows_nodes_down_where_this_process_has_a_part_in_it() -> None:
    machine, pace = Machine(), Pace()
    tempo = tempo_on(machine, pace)

    machine.work(0.4, full=0.97)
    slowed = tempo.pace()
    machine.work(0.3, full=0.6)
    again = tempo.pace()

    assert slowed.quiet_s > pace.quiet_s
    assert again.quiet_s < slowed.quiet_s


def test_a_machine_that_others_fill_slows_no_node_down() -> None:
    machine, pace = Machine(), Pace()
    tempo = tempo_on(machine, pace)

    machine.work(0.05, full=1.0)

    assert tempo.pace() == pace


def test_what_the_machine_works_is_counted_by_the_share_of_its_processors() -> None:
    before = machine_used_s()
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass

    assert machine_used_s() >= before + 0.1 / (os.cpu_count() or 1) - 0.02


def test_the_pace_comes_back_when_the_load_is_gone() -> None:
    machine, pace = Machine(), Pace()
    tempo = tempo_on(machine, pace)
    for _ in range(5):
        machine.work(0.95)
        tempo.pace()

    for _ in range(30):
        machine.work(0.1)
        tempo.pace()

    assert tempo.pace() == pace


def test_a_pace_that_the_settings_make_slower_than_the_slowest_stays() -> None:
    machine, pace = Machine(), Pace(quiet_s=10.0, slowest_s=8.0)
    tempo = tempo_on(machine, pace)

    machine.work(0.95)

    assert tempo.pace().quiet_s == 10.0
