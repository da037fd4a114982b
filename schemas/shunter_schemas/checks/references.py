"""Names and paths that point elsewhere: inputs, files of the source, variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from shunter_schemas.faults import Fault, pointer
from shunter_schemas.job import JobSpec
from shunter_schemas.nearest import did_you_mean
from shunter_schemas.script import ScriptWorkload
from shunter_schemas.source import BUNDLE_ID_PATTERN, GitSource
from shunter_schemas.strategies import OwnStrategy

INPUT_SCHEMES: Final = ("s3", "gs", "az", "https", "hf")

RESERVED_VARIABLES: Final = frozenset(
    [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "ROLE_NAME",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_ERROR_FILE",
        "CUDA_VISIBLE_DEVICES",
    ]
)
"""Variables that the agent sets for each rank, besides everything that begins with `SHUNTER_`."""

OPEN_VARIABLES: Final = frozenset({"SHUNTER_DEBUG", "SHUNTER_PEAK_TFLOPS"})
"""Those of Shunter's own that a document may set: what ranks print of their talking, and what MFU is a share of."""

_BUNDLE: Final = re.compile(BUNDLE_ID_PATTERN.strip("^$"))


def _paths(job: JobSpec) -> Iterator[Fault]:
    for place, path in _all_paths(job):
        if path.startswith("input:"):
            name, _, rest = path.removeprefix("input:").partition("/")
            if name not in job.inputs:
                yield Fault(place, f"there is no input of this name in `inputs`{did_you_mean(name, job.inputs)}")
        else:
            rest = path
            if job.source is None:
                yield Fault(place, "this is a path in the source, and `source` is not given; add it, or use input:NAME")
        if ".." in rest.split("/"):
            yield Fault(place, "the path leaves its folder by `..`")


def _all_paths(job: JobSpec) -> Iterator[tuple[str, str]]:
    workload = job.workload
    candidates: dict[str, object] = {"/environment/requirements_file": job.environment.requirements_file}
    if isinstance(job.strategy, OwnStrategy):
        candidates["/strategy/deepspeed_file"] = job.strategy.deepspeed_file
    if isinstance(workload, ScriptWorkload):
        if not workload.module and job.source is not None:
            candidates["/workload/entrypoint"] = workload.entrypoint
    else:
        candidates["/workload/model/weights"] = getattr(workload.model, "weights", None)
        for place, data in (("/workload/data", workload.data), ("/workload/data/validation", workload.data.validation)):
            candidates[f"{place}/path"] = getattr(data, "path", None)
            tokenizer = getattr(data, "tokenizer", "bytes")
            candidates[f"{place}/tokenizer"] = None if tokenizer in {"bytes", "model"} else tokenizer
    for place, path in candidates.items():
        if isinstance(path, str):
            yield place, path


def _inputs(job: JobSpec) -> Iterator[Fault]:
    for name, item in job.inputs.items():
        scheme, separator, rest = item.from_.partition(":")
        place = pointer(("inputs", name, "from"))
        if scheme == "bundle" and separator and not _BUNDLE.fullmatch(rest):
            yield Fault(place, "must be `bundle:bun_` and 64 hex digits, as the upload answered it")
        elif rest.startswith("//") and scheme not in INPUT_SCHEMES:
            schemes = ", ".join(INPUT_SCHEMES)
            yield Fault(place, f"unknown scheme; known: bundle, {schemes}{did_you_mean(scheme, INPUT_SCHEMES)}")


def _git_credentials(job: JobSpec) -> Iterator[Fault]:
    if not isinstance(job.source, GitSource):
        return
    scheme, _, rest = job.source.url.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and (scheme in {"http", "https"} or ":" in user):
        yield Fault("/source/url", "the URL holds credentials, which would be stored and shown; use `source.secret`")


def _variables(job: JobSpec) -> Iterator[Fault]:
    for name in job.environment.variables:
        if name in RESERVED_VARIABLES or (name.startswith("SHUNTER_") and name not in OPEN_VARIABLES):
            yield Fault(pointer(("environment", "variables", name)), "the agent sets this variable; use another name")


def _environment(job: JobSpec) -> Iterator[Fault]:
    environment = job.environment
    if environment.registry is not None and environment.image is None:
        yield Fault("/environment/registry", "needs `environment.image`, which is not given; add it, or leave this out")
    for name in sorted(set(environment.secrets) & set(environment.variables)):
        place = pointer(("environment", "variables", name))
        yield Fault(place, "`environment.secrets` gives a variable of this name too; leave one of them out")
    if job.outputs.secret is not None and job.outputs.uri is None:
        yield Fault("/outputs/secret", "needs `outputs.uri`, which is not given; add it, or leave this out")


CHECKS = (_paths, _inputs, _git_credentials, _variables, _environment)
