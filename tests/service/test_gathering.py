"""Askers that share runs: none waits for nothing, none is forgotten, none is hurt by another."""

import asyncio
from collections.abc import Sequence

import pytest
from shunter_service.node.gathering import Gathering


class Work:
    """Doubles numbers. Runs wait at the gate; a negative number is refused, 0 breaks the whole run."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.runs: list[list[int]] = []
        self.gate = asyncio.Event()
        self.begun = asyncio.Semaphore(0)
        if is_open:
            self.gate.set()

    async def __call__(self, numbers: Sequence[int]) -> Sequence[int | Exception]:
        self.runs.append(list(numbers))
        self.begun.release()
        await self.gate.wait()
        if 0 in numbers:
            raise RuntimeError("broken")
        return [2 * number if number > 0 else ValueError(str(number)) for number in numbers]


async def test_who_comes_alone_is_served_at_once() -> None:
    work = Work()
    gathering = Gathering(work)

    assert [await gathering.ask(number) for number in (1, 2, 3)] == [2, 4, 6]

    assert work.runs == [[1], [2], [3]]


async def test_who_comes_while_a_run_is_under_way_shares_the_next() -> None:
    work = Work(is_open=False)
    gathering = Gathering(work)
    first = asyncio.create_task(gathering.ask(1))
    await begun(work, 1)
    others = [asyncio.create_task(gathering.ask(number)) for number in (2, 3, 4)]
    await asyncio.sleep(0)

    work.gate.set()

    assert await asyncio.gather(first, *others) == [2, 4, 6, 8]
    assert work.runs == [[1], [2, 3, 4]]


async def test_a_run_takes_no_more_than_the_largest_number() -> None:
    work = Work()
    gathering = Gathering(work, largest=2)

    await asyncio.gather(*(gathering.ask(number) for number in range(1, 6)))

    assert work.runs == [[1, 2], [3, 4], [5]]


async def test_as_many_runs_are_under_way_as_allowed() -> None:
    work = Work(is_open=False)
    gathering = Gathering(work, largest=1, at_once=2)

    asked = [asyncio.create_task(gathering.ask(number)) for number in (1, 2, 3)]
    await begun(work, 2)
    await asyncio.sleep(0.01)
    under_way = [*work.runs]
    work.gate.set()

    assert under_way == [[1], [2]]
    assert await asyncio.gather(*asked) == [2, 4, 6]


async def test_one_that_is_refused_hurts_no_other() -> None:
    gathering = Gathering(Work())

    answers = await asyncio.gather(*(gathering.ask(number) for number in (1, -1, 2)), return_exceptions=True)

    assert (answers[0], answers[2]) == (2, 4)
    assert isinstance(answers[1], ValueError)


async def test_a_run_that_breaks_breaks_for_all_of_its_askers_and_for_nobody_else() -> None:
    gathering = Gathering(Work())

    broken = await asyncio.gather(*(gathering.ask(number) for number in (1, 0)), return_exceptions=True)

    assert [type(answer) for answer in broken] == [RuntimeError, RuntimeError]
    assert await gathering.ask(3) == 6


async def test_an_asker_that_goes_away_leaves_the_others_served() -> None:
    work = Work(is_open=False)
    gathering = Gathering(work)
    leaving = asyncio.create_task(gathering.ask(1))
    staying = asyncio.create_task(gathering.ask(2))
    await begun(work, 1)

    leaving.cancel()
    work.gate.set()

    assert await staying == 4
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_askers_that_come_in_every_turn_of_the_loop_are_all_served() -> None:
    gathering = Gathering(Work(), largest=3)

    async def later(number: int) -> int:
        for _ in range(number % 7):
            await asyncio.sleep(0)
        return await gathering.ask(number)

    async with asyncio.timeout(5):
        answers = await asyncio.gather(*(later(number) for number in range(1, 300)))

    assert answers == [2 * number for number in range(1, 300)]


async def test_closing_waits_for_the_run_under_way() -> None:
    work = Work(is_open=False)
    gathering = Gathering(work)
    asked = asyncio.create_task(gathering.ask(1))
    await begun(work, 1)
    closing = asyncio.create_task(gathering.close())
    await asyncio.sleep(0)

    work.gate.set()
    await closing

    assert asked.done() or await asked == 2


async def begun(work: Work, runs: int) -> None:
    async with asyncio.timeout(5):
        for _ in range(runs):
            await work.begun.acquire()
