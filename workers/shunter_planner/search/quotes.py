"""A candidate with what it would take: time and money of the whole run, or of a step where its length is not known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shunter_schemas.batching import total_steps
from shunter_schemas.job import JobSpec
from shunter_schemas.training import TrainingWorkload

from shunter_planner.costs import USUAL_CHECKPOINT_S, costs_of, run_of
from shunter_planner.fitting import Shape
from shunter_planner.predictions import Prediction, factor_of, prediction_of, with_run
from shunter_planner.search.machines import Machine
from shunter_planner.search.sizing import Option, Sized
from shunter_planner.values import Candidate


@dataclass(frozen=True, slots=True)
class Place:
    """An offer, and how the gang lies on it."""

    candidate: Candidate
    shape: Shape
    machine: Machine

    @property
    def usd_per_hour(self) -> float:
        """Over all nodes."""
        return self.shape.num_nodes * self.candidate.offer.price.usd_per_hour


@dataclass(frozen=True, slots=True)
class Quote:
    """One way to run the job. Without `sized` nothing is known but the price."""

    place: Place
    sized: Sized | None
    prediction: Prediction | None

    @property
    def cost(self) -> float:
        """What is compared: the whole run, else a step, else an hour."""
        prediction = self.prediction
        if prediction is None:
            return self.place.usd_per_hour
        if prediction.cost_usd is not None:
            return prediction.cost_usd
        return self.place.usd_per_hour * prediction.step_s / 3600

    @property
    def seconds(self) -> float:
        """The same of time; 0 where nothing is known."""
        prediction = self.prediction
        if prediction is None:
            return 0.0
        return prediction.duration_s if prediction.duration_s is not None else prediction.step_s


def quote(document: JobSpec, place: Place, sized: Sized | None, *, is_exact: bool = True) -> Quote:
    """What the place would take for this document."""
    prediction = None if sized is None else _predict(document, place, sized.best, is_exact=is_exact)
    return Quote(place, sized, prediction)


def with_option(document: JobSpec, made: Quote, option: Option) -> Quote:
    """The same place with another option."""
    assert made.sized is not None, "there are no other options"
    return replace(made, sized=replace(made.sized, best=option), prediction=_predict(document, made.place, option))


def _predict(document: JobSpec, place: Place, option: Option, *, is_exact: bool = True) -> Prediction:
    """Memory and step of an option, and the whole run where its number of steps is known."""
    gpu, workload = place.machine.gpu, document.workload
    is_sure = is_exact and place.machine.interconnect != "any"  # nothing is known of the network between nodes
    known = prediction_of(option, gpu, factor=factor_of(gpu, is_sure=is_sure))
    assert isinstance(workload, TrainingWorkload), "only trainings are predicted"
    steps = total_steps(workload)
    if steps is None:
        return known
    every_s = workload.checkpoint.every_s or (workload.checkpoint.every_steps or 0) * known.step_s
    offer, nodes, train_s = place.candidate.offer, place.shape.num_nodes, steps * known.step_s
    run = run_of(offer, nodes, train_s, every_s or USUAL_CHECKPOINT_S, shared_host=place.candidate.shared_host)
    return with_run(known, steps, run, costs_of(offer, nodes, run), steps * option.time.tokens)
