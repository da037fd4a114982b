"""Which stored tensors make which tensors of the model, and how.

Names in files are those of the hub, which differ from the library's for some architectures (experts stored one by one,
say). The library's own table of conversions says how; it is followed here one tensor, or one group of tensors that are
converted together, at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from shunter_trainer.failures import UserFault
from shunter_trainer.models.huggingface.weight_files import WeightFiles

_POINTER = "/workload/model/weights"
_SHOWN = 4


@dataclass(slots=True)
class _Group:
    """Stored tensors that are converted together, and by what."""

    first: str
    converter: Any
    members: list[tuple[str, str]] = field(default_factory=list)
    """Pattern and stored name of each."""


class PretrainedValues:
    """Reads tensors of one model out of files."""

    def __init__(self, model: Any, files: WeightFiles, task: str) -> None:
        """Match names and shapes; values are read later.

        Raises: UserFault when the files leave a part of the model's body open, or do not fit it.
        """
        self._model = model
        self._files = files
        self._direct: dict[str, str] = {}
        self._groups: dict[str, _Group] = {}
        self._kept: tuple[_Group, Mapping[str, Tensor]] | None = None
        self.unused: list[str] = []
        """Stored tensors that the model has no place for."""
        self._match()
        self._share_tied()
        self.fresh = self._unfilled(task)
        """Parameters and saved buffers of the head that the files do not hold, or hold in another size."""

    def has(self, name: str) -> bool:
        """Whether a tensor of the model comes out of the files."""
        return name in self._direct or name in self._groups

    def fill(self, tensor: Tensor, name: str) -> None:
        """Read the tensor of this name into place."""
        tensor.copy_(self.read(name))

    @property
    def dtype(self) -> torch.dtype:
        """The type that most stored numbers have."""
        counts: dict[torch.dtype, int] = {}
        for form in map(self._files.form, self._files.names()):
            if form.is_floating_point():
                counts[form.dtype] = counts.get(form.dtype, 0) + form.numel()
        return max(counts, key=lambda dtype: counts[dtype], default=torch.float32)

    def _match(self) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

        transforms = get_model_conversion_mapping(self._model)
        renamings = [entry for entry in transforms if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in transforms if isinstance(entry, WeightConverter)]
        of_pattern = {pattern: entry for entry in converters for pattern in entry.source_patterns}
        own = self._model.state_dict()
        prefix = self._model.base_model_prefix
        groups: dict[str, _Group] = {}
        for stored in sorted(self._files.names(), key=dot_natural_key):
            name, pattern = rename_source_key(stored, renamings, converters, prefix, own)
            if name not in own and stored in own:
                name, pattern = rename_source_key(stored, [], [], prefix, own)
            if name not in own:
                self.unused.append(stored)
            elif pattern is None:
                self._direct[name] = stored
            else:
                group = groups.setdefault(name, _Group(name, of_pattern[pattern]))
                group.members.append((pattern, stored))
        # The export turns those names back that were turned here.
        self._model._weight_conversions = [entry for entry in transforms if entry.was_used()]
        self._forms = {name: self._files.form(stored) for name, stored in self._direct.items()}
        for group in groups.values():
            made = self._converted(group, self._files.form)
            self._forms.update(made)
            self._groups.update(dict.fromkeys(made, group))

    def _converted(self, group: _Group, get: Any) -> Mapping[str, Tensor]:
        converter = copy.deepcopy(group.converter)
        for pattern, stored in group.members:
            converter.add_tensor(group.first, stored, pattern, get(stored))
        made = converter.convert(group.first, model=self._model, config=self._model.config)
        return {name: value[0] if isinstance(value, list) else value for name, value in made.items()}

    def read(self, name: str) -> Tensor:
        """The tensor of this name on the CPU, in the type in which it is stored."""
        if name in self._direct:
            return self._files.read(self._direct[name])
        group = self._groups[name]
        if self._kept is None or self._kept[0] is not group:
            self._kept = (group, self._converted(group, self._files.read))
        return self._kept[1][name]

    def _share_tied(self) -> None:
        """A tied tensor may be stored under any of its names.

        Raises: UserFault when it is stored under two with different values.
        """
        for names in _names_of_shared(self._model):
            stored = [name for name in names if self.has(name)]
            for other in stored[1:]:
                if not torch.equal(self.read(stored[0]), self.read(other)):
                    detail = f"the files hold different values for {stored[0]} and {other}, which this model shares"
                    raise UserFault(
                        "/workload/model/config/tie_word_embeddings", f"{detail}; set it to false to keep both"
                    )
            for name in names:
                if stored and name not in stored:
                    self._take_from(stored[0], name)

    def _take_from(self, other: str, name: str) -> None:
        self._forms[name] = self._forms[other]
        if other in self._direct:
            self._direct[name] = self._direct[other]
        else:
            self._groups[name] = self._groups[other]

    def _unfilled(self, task: str) -> list[str]:
        own = self._model.state_dict()
        told = SimpleNamespace(
            missing_keys={name for name in own if not self.has(name)}, unexpected_keys=set(self.unused)
        )
        self._model._adjust_missing_and_unexpected_keys(told)
        fresh, self.unused = sorted(told.missing_keys), sorted(told.unexpected_keys)
        wrong = [name for name in own if self.has(name) and self._forms[name].shape != own[name].shape]
        may_be_fresh = head_of(self._model) if task != "causal_lm" else frozenset[str]()
        if missing := [name for name in fresh if name not in may_be_fresh]:
            raise UserFault(_POINTER, f"the files hold no {_listed(missing)}{self._instead(missing)}")
        for name in wrong:
            if name not in may_be_fresh:
                detail = f"{name} is {tuple(self._forms[name].shape)} in the files and {tuple(own[name].shape)} here"
                raise UserFault("/workload/model/config", f"{detail}; give sizes that fit, or leave them out")
            self._direct.pop(name, None)
            self._groups.pop(name, None)
        return sorted(fresh + wrong)

    def _instead(self, missing: list[str]) -> str:
        return f"; they hold {_listed(self.unused)} instead" if self.unused else ""


def head_of(model: Any) -> frozenset[str]:
    """Names of parameters and buffers outside the model's body: what a new task starts afresh."""
    body = getattr(model, model.base_model_prefix, None)
    if not isinstance(body, nn.Module):
        return frozenset()
    within = f"{model.base_model_prefix}."
    return frozenset(name for name in model.state_dict() if not name.startswith(within))


def _names_of_shared(model: nn.Module) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [sharing for sharing in names.values() if len(sharing) > 1]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
