"""From the document to a model of `transformers` without memory, and how its values, its names and its files come."""

from __future__ import annotations

import copy
import hashlib
import inspect
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from shunter_schemas.models import HuggingFaceModel
from torch import Tensor, nn

from shunter_trainer.failures import UserFault
from shunter_trainer.models.huggingface.configuration import auto_class, read_config, weights_folder
from shunter_trainer.models.huggingface.fresh import FreshValues
from shunter_trainer.models.huggingface.pretrained import PretrainedValues, head_of
from shunter_trainer.models.huggingface.weight_files import WeightFiles
from shunter_trainer.models.materialise import Filler
from shunter_trainer.models.release import companions_in
from shunter_trainer.places import Places


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """A model on the meta device, and where it comes from."""

    module: Any
    fill: Filler
    accepts: frozenset[str]
    """What `forward` takes by name."""
    config: Any
    """The configuration as it is exported."""
    pretrained: PretrainedValues | None
    """None: all values are fresh."""
    companions: tuple[Path, ...]
    head: frozenset[str]
    """Parameters of a classifier's head."""
    notes: tuple[str, ...]
    """What a person should know about the weights."""
    _files: WeightFiles | None
    _seed: int

    def base_sha256(self) -> str:
        """Digest of the configuration and of all pretrained weights (fresh ones: the seed).

        Every rank calls it: each reads a part of the files. The digest is the same for any number of ranks.
        """
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        own = self._files.digests(rank, ranks) if self._files else [(0, f"seed {self._seed}")] * (rank == 0)
        pieces: list[Any] = [own]
        if ranks > 1:
            pieces = [None] * ranks
            dist.all_gather_object(pieces, own)
        config = json.dumps(plain_config(self.config), sort_keys=True)
        everything = [config, *(digest for _, digest in sorted(itertools.chain(*pieces)))]
        return hashlib.sha256("\n".join(everything).encode()).hexdigest()


def build(model: HuggingFaceModel, seed: int, places: Places, padding: int | None) -> HuggingFace:
    """`padding`: as of `read_config`.

    Raises: UserFault naming the field of the document that cannot be followed.
    """
    _import_transformers()
    folder = weights_folder(model, places)
    config = read_config(model, folder, padding)
    exported = copy.deepcopy(config)
    for part in (config, config.get_text_config()):
        part.use_cache = False
    module = _on_meta(model.task, config)
    exported.architectures = [type(module).__name__]
    fresh = FreshValues(module, seed, lambda: _with_memory(model.task, config))
    files = WeightFiles(folder) if folder else None
    pretrained = PretrainedValues(module, files, model.task) if files else None
    return HuggingFace(
        module=module,
        fill=_filler(fresh, pretrained),
        accepts=_accepted(module),
        config=exported,
        pretrained=pretrained,
        companions=companions_in(folder) if folder else (),
        head=_trainable(module, head_of(module)) if model.task != "causal_lm" else frozenset(),
        notes=_notes(pretrained) if pretrained else (),
        _files=files,
        _seed=seed,
    )


def stored_names(module: Any) -> Any:
    """`Release.convert` for this model: the names and forms of the files that `transformers` reads."""
    from transformers.core_model_loading import WeightConverter, apply_converters, revert_weight_conversion

    if getattr(module, "_weight_conversions", None) is None:
        module._weight_conversions = _default_conversions(module)
    backward = [entry.reverse_transform() for entry in module._weight_conversions[::-1]]
    converters = [entry for entry in backward if isinstance(entry, WeightConverter)]
    group_of = {name: apply_converters(name, converters) for name in module.state_dict()}
    missing: dict[str, set[str]] = {}
    for name, (group, pattern) in group_of.items():
        if pattern is not None:
            missing.setdefault(group, set()).add(name)
    waiting: dict[str, dict[str, Tensor]] = {}

    def convert(named: tuple[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        name, value = named
        group, pattern = group_of.get(name, (name, None))
        if pattern is None:
            yield from revert_weight_conversion(module, {name: value}).items()
            return
        parts = waiting.setdefault(group, {})
        parts[name] = value
        if len(parts) == len(missing[group]):
            yield from revert_weight_conversion(module, waiting.pop(group)).items()

    return convert


def plain_config(config: Any) -> dict[str, Any]:
    """What `config.json` says."""
    written: dict[str, Any] = json.loads(config.to_json_string(use_diff=True))
    return written


def _import_transformers() -> None:
    try:
        import transformers
    except ImportError as error:
        raise UserFault(
            "/workload/model/kind", 'needs the package transformers; add "transformers" to environment.requirements'
        ) from error
    # What it says at lower levels is meant for people at a prompt, and every rank would say it.
    quiet: Any = transformers.logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()


def _on_meta(task: str, config: Any) -> Any:
    from transformers.initialization import no_init_weights

    try:
        with torch.device("meta"), no_init_weights():
            module = auto_class(task).from_config(config, dtype=torch.float32)
    except Exception as error:  # constructors check sizes in many ways
        raise UserFault("/workload/model/config", f"no model can be made of it: {error}") from error
    module.tie_weights()
    return module.train()


def _with_memory(task: str, config: Any) -> nn.Module:
    module: nn.Module = auto_class(task).from_config(config, dtype=torch.float32)
    return module


def _filler(fresh: FreshValues, pretrained: PretrainedValues | None) -> Filler:
    def fill(module: nn.Module, names: Mapping[str, str]) -> None:
        for own, name in names.items():
            tensor: Tensor = getattr(module, own)
            if pretrained is not None and pretrained.has(name):
                pretrained.fill(tensor, name)
            else:
                fresh.fill(tensor, name)

    return fill


def _accepted(module: nn.Module) -> frozenset[str]:
    parameters = inspect.signature(module.forward).parameters.values()
    return frozenset(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD)


def _trainable(module: nn.Module, names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, _ in module.named_parameters() if name in names)


def _notes(pretrained: PretrainedValues) -> tuple[str, ...]:
    notes = []
    if pretrained.fresh:
        notes.append(f"not in the pretrained weights, begun afresh: {_listed(pretrained.fresh)}")
    if pretrained.unused:
        notes.append(f"in the pretrained weights, but in no place of this model: {_listed(pretrained.unused)}")
    return tuple(notes)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _default_conversions(module: Any) -> list[Any]:
    """Those of a model that was not read from files, as `revert_weight_conversion` chooses them."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import PrefixChange

    transforms = get_model_conversion_mapping(module, add_legacy=False)
    return [entry for entry in transforms if not isinstance(entry, PrefixChange)]
