"""One rank from its start to its end: join, build, resume, train, export, leave."""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from dataclasses import replace

import torch
from shunter_schemas.training import TrainingWorkload

from shunter_trainer import deferred_dynamo
from shunter_trainer.checkpoint.manifest import sweep
from shunter_trainer.checkpoint.save import Policy, Position, Saver
from shunter_trainer.data.build import DataSets, build_data
from shunter_trainer.data.classes import class_names, with_classes
from shunter_trainer.data.geometry import Geometry, cut, total_steps
from shunter_trainer.data.samples import Unindexed
from shunter_trainer.data.stream import Seat, open_stream
from shunter_trainer.document import Task, read_task
from shunter_trainer.evaluation import Evaluator
from shunter_trainer.export import export
from shunter_trainer.failures import OUT_OF_MEMORY, LossSpiked, NonFinite, PeerDiskFull, UserFault, explain
from shunter_trainer.gang import Gang, join, leave
from shunter_trainer.guards.hang import HangWatchdog
from shunter_trainer.guards.memory import memory_facts
from shunter_trainer.guards.stop import EX_TEMPFAIL, Wishes
from shunter_trainer.loop import Course, Crew, Loop
from shunter_trainer.measuring.tracer import Tracer
from shunter_trainer.models.build import Built, build_model
from shunter_trainer.models.objective import Objective
from shunter_trainer.optim.optimizers import optimizer_maker
from shunter_trainer.optim.schedules import schedule_factor
from shunter_trainer.oversight import Oversight, work_of
from shunter_trainer.pace import Pace
from shunter_trainer.places import Places
from shunter_trainer.reports import Reports
from shunter_trainer.seeds import step_seeder
from shunter_trainer.strategies import strategy_for
from shunter_trainer.strategies.base import Parts, Strategy
from shunter_trainer.trial import try_micro_size

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def run_rank() -> int:
    """The exit code of this rank. Failures are reported in the metrics file and on stderr."""
    reports = Reports(None, is_main=False)
    try:
        gang = Gang.from_environment()
        places = Places.from_environment()
        reports = Reports(places.metrics, gang.is_main)
        complete = train(gang, places, reports)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:  # also what torch's checkpoints raise, and a user's sys.exit()
        _report(error, reports)
        return 1
    return 0 if complete else EX_TEMPFAIL


def train(gang: Gang, places: Places, reports: Reports) -> bool:
    """Join the gang, run the training of the document to its end, and leave; True when it is complete."""
    task = read_task(places.document)
    watchdog = HangWatchdog(reports.failure, fixed_s=task.workload.guards.hang_s)
    watchdog.start()
    if gang.leads_node:
        sweep(places.checkpoints)
    join(gang)
    wishes = Wishes()
    wishes.listen()
    reports.up()
    if task.workload.compile is not True:
        deferred_dynamo.defer()
    data = build_data(task.workload, places, watchdog.beat)
    for note in data.notes:
        reports.say(f"data: {note}")
    built = build_model(with_classes(task.workload, data.classes), places)
    for note in built.notes:
        reports.say(note)
    course, geometry = _course(task.workload, data, gang)
    oversight = _oversight(task.workload, built, course, places, gang)
    strategy, objective = _prepared(task, built, gang)
    geometry = _tried(task, data, geometry, strategy, gang, (reports, oversight))
    start, told = _resumed(task, strategy, places, gang, reports, built.release.base_sha256)
    every = task.workload.log_every_steps
    crew = Crew(
        strategy=strategy,
        stream=open_stream(
            data.train, Seat(geometry, gang.rank, gang.device, task.workload.seed, start.samples_seen), data.workers
        ),
        evaluator=_evaluator(task.workload, data, objective, geometry, gang),
        saver=Saver(_policy(task.workload, places), gang),
        reports=reports,
        watchdog=watchdog,
        wishes=wishes,
        pace=Pace(gang, start.step, None if every == "auto" else every),
        oversight=oversight,
        seed_step=step_seeder(task.workload.seed, gang),
    )
    # What was made so far lives to the end: the collector need not look at it in every step.
    gc.enable()
    gc.freeze()
    complete = Loop(course, crew, start, told).run()
    crew.stream.close()
    with watchdog.slow_phase("export"):
        if complete:
            release = replace(built.release, config={**class_names(data.classes), **built.release.config})
            export(strategy, release, places.output, gang, weights=task.workload.export.weights)
        leave(gang)
    return complete


def _prepared(task: Task, built: Built, gang: Gang) -> tuple[Strategy, Objective]:
    workload = task.workload
    objective = Objective(workload.loss, built.accepts, own_labels=built.own_labels, classifies=built.classifies)
    strategy, geometry = strategy_for(task.strategy), cut(workload, gang.world_size)
    strategy.prepare(
        Parts(
            module=built.module,
            objective=objective,
            make_optimizer=optimizer_maker(workload.optimizer),
            keeps_groups=workload.optimizer.kind == "python",
            compute_dtype=_DTYPES[workload.dtypes.compute],
            reduce_dtype=_DTYPES[workload.dtypes.reduce],
            gang=gang,
            fill=built.fill,
            micro_size=geometry.micro_size,
            accumulation=geometry.accumulation,
        )
    )
    return strategy, objective


def _tried(
    task: Task, data: DataSets, geometry: Geometry, strategy: Strategy, gang: Gang, told: tuple[Reports, Oversight]
) -> Geometry:
    """The step in micro-batches that fit, where the plan chose their size; `told` hear of it."""
    if not task.micro_size_is_free or geometry.micro_size == 1:
        return geometry
    trial = try_micro_size(strategy, data.train, geometry, gang, task.workload.optimizer)
    if trial.tried:
        reports, oversight = told
        reports.micro_batch(trial.report)
        oversight.tell("micro_size", float(trial.geometry.micro_size))
    return trial.geometry


def _course(workload: TrainingWorkload, data: DataSets, gang: Gang) -> tuple[Course, Geometry]:
    geometry = cut(workload, gang.world_size)
    train = data.train
    count, tokens = (None, 0) if isinstance(train, Unindexed) else (len(train), train.tokens_per_sample)
    steps = total_steps(workload, count)
    course = Course(
        total_steps=steps,
        global_size=geometry.global_size,
        tokens_per_sample=tokens,
        factor=schedule_factor(workload.schedule, steps),
        clip_norm=workload.gradient_clip_norm,
        checkpoint=workload.checkpoint,
        evaluate_every=workload.evaluation.every_steps if workload.evaluation else None,
    )
    return course, geometry


def _oversight(workload: TrainingWorkload, built: Built, course: Course, places: Places, gang: Gang) -> Oversight:
    evaluation, profile = workload.evaluation, workload.profile
    return Oversight(
        gang.device,
        workload.guards,
        evaluation.early_stopping if evaluation is not None else None,
        work_of(built.module, built.release.config, course.tokens_per_sample, gang),
        Tracer(profile, places.output, gang) if profile is not None else None,
    )


def _evaluator(
    workload: TrainingWorkload, data: DataSets, objective: Objective, geometry: Geometry, gang: Gang
) -> Evaluator | None:
    if workload.evaluation is None or data.validation is None:
        return None
    return Evaluator(data.validation, workload, objective, geometry, gang)


def _policy(workload: TrainingWorkload, places: Places) -> Policy:
    return Policy(places.checkpoints, places.generation, workload.checkpoint.keep, workload.checkpoint.keep_best)


def _resumed(
    task: Task, strategy: Strategy, places: Places, gang: Gang, reports: Reports, base_sha256: str | None
) -> tuple[Position, dict[str, float]]:
    """Where the training stands: at the checkpoint to resume from, else at its beginning; and what it took."""
    fresh = Position(0, 0, task.digest, gang.world_size, task.strategy.kind, base_sha256=base_sha256)
    if places.resume is None:
        return fresh, {}
    # Heavy imports, needed only here.
    from shunter_trainer.checkpoint.load import find_checkpoint, load_checkpoint

    began = time.perf_counter()
    folder = find_checkpoint(places.resume)
    saved = load_checkpoint(folder, strategy, gang)
    if saved.base_sha256 != base_sha256:
        raise UserFault(
            "/workload/model/weights",
            f"{folder.name} holds an adapter of another base: {_short(saved.base_sha256)} there, "
            f"{_short(base_sha256)} here; give the base that it was trained on",
        )
    if saved.workload_sha256 != task.digest:
        reports.say(f"{folder.name} was saved under another document; its weights are taken over all the same")
    strategy.recall(saved.memory)
    took_s = time.perf_counter() - began
    reports.say(f"resumed from {folder.name} in {took_s:.2f} s")
    start = replace(fresh, step=saved.step, samples_seen=saved.samples_seen, memory=saved.memory)
    return start, {"checkpoint_load_s": took_s}


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"


def _report(error: BaseException, reports: Reports) -> None:
    reason, message = explain(error)
    if reason == OUT_OF_MEMORY:
        message = f"{message} {memory_facts()}"
    if isinstance(error, UserFault | NonFinite | LossSpiked) and error.__cause__ is None:
        print(f"error: {error}", file=sys.stderr, flush=True)
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    reports.failure(reason, message, error.rank if isinstance(error, PeerDiskFull) else None)


def main() -> None:
    """Never returns: interpreter shutdown under a live process group may abort after success."""
    code = run_rank()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
