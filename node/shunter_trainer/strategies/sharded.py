"""Sharded data parallel: parameters, gradients and optimizer state are split over ranks (`fully_shard`).

`fsdp` splits over all ranks. `hsdp` splits inside groups of ranks, and every group holds the whole: gradients are
reduced inside a group first, then between groups, on a mesh of two axes.

Where accumulation would keep gradients of whole units, they are reduced after every micro-batch instead: the memory
that splitting saves is worth more than the messages. Two things are still put off: with `reshard_after_forward` false
everything (who keeps whole parameters has room for whole gradients), and the messages between groups.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from shunter_schemas.strategies import FsdpStrategy, HsdpStrategy
from torch import Tensor, nn

from shunter_trainer.failures import UserFault
from shunter_trainer.gang import Gang
from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.objective import Batch
from shunter_trainer.strategies.axes import check_axes
from shunter_trainer.strategies.base import Parts, TorchStrategy, Wanted, all_of_them
from shunter_trainer.strategies.units import Unit, units_of

REPLICATE, SHARD = "replicate", "shard"


class Sharded(TorchStrategy):
    """What both have in common; they differ in the mesh."""

    module: Any
    """An `FSDPModule` (whose module is heavy to import, so that its type cannot be named here)."""

    def __init__(self, document: FsdpStrategy | HsdpStrategy) -> None:
        self._document = document
        self._shards: dist.ProcessGroup | None = None
        self._units: list[Any] = []

    @abstractmethod
    def make_mesh(self, gang: Gang) -> Any:
        """A device mesh with an axis called "shard", the last. Every rank calls it; communicates.

        Raises: UserFault when ranks do not divide.
        """

    def prepare(self, parts: Parts) -> None:
        check_axes(parts.module)
        mesh = self.make_mesh(parts.gang)
        shards = mesh.size(mesh.ndim - 1)
        check_resharding(self._document.reshard_after_forward, shards)
        for unit in units_of(parts.module, self._document.wrap):
            materialise(unit.parts, parts.fill, parts.gang.device)
            self._shard(unit, unit.module is parts.module, parts, mesh)
        if shards > 1:
            self._shards = mesh.get_group(SHARD)
        self.adopt(parts.module, parts)

    def compute(self, batch: Batch) -> Tensor:
        return self.objective(self.module, batch)

    def hold_gradients(self) -> AbstractContextManager[Any]:
        if self._document.reshard_after_forward is False:
            return _switched(self.module.set_requires_gradient_sync)
        return nullcontext()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        with super().evaluating():
            try:
                yield
            finally:
                # Without a backward pass, what a forward pass gathered and did not let go would stay gathered.
                for unit in self._units:
                    unit.reshard()

    def weights(self, wanted: Wanted = all_of_them) -> Iterator[tuple[str, Tensor]]:
        for name, value in self.module.state_dict().items():
            if wanted(name):
                whole = value.detach().to(self.gang.device)
                yield name, (whole.full_tensor() if hasattr(whole, "full_tensor") else whole).cpu()

    def _gradients(self) -> list[Tensor]:
        with torch.no_grad():
            return [_local(gradient) for gradient in super()._gradients()]

    def _over_ranks(self, norm: Tensor) -> Tensor:
        if self._shards is None:
            return norm
        square = norm.square()
        dist.all_reduce(square, group=self._shards)
        return square.sqrt()

    def _shard(self, unit: Unit, is_root: bool, parts: Parts, mesh: Any) -> None:
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

        gang, document = parts.gang, self._document
        reshard = document.reshard_after_forward
        fully_shard(
            unit.module,
            mesh=mesh,
            # The root's parameters are the first that the backward pass needs: torch keeps them then.
            reshard_after_forward=None if is_root and reshard is True else reshard,
            mp_policy=MixedPrecisionPolicy(
                param_dtype=parts.compute_dtype,
                reduce_dtype=parts.reduce_dtype,
                cast_forward_inputs=_casts_inputs(unit.module, parts.compute_dtype),
            ),
            offload_policy=(
                CPUOffloadPolicy(pin_memory=gang.device.type == "cuda")
                if document.offload == "cpu"
                else OffloadPolicy()
            ),
        )
        self._units.append(unit.module)


class Fsdp(Sharded):
    """Split over all ranks."""

    def make_mesh(self, gang: Gang) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(gang.device.type, (gang.world_size,), mesh_dim_names=(SHARD,))


class Hsdp(Sharded):
    """Split inside groups of ranks; each group holds the whole."""

    _document: HsdpStrategy

    def make_mesh(self, gang: Gang) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        size = group_size(self._document, gang)
        form = (gang.world_size // size, size)
        return init_device_mesh(gang.device.type, form, mesh_dim_names=(REPLICATE, SHARD))

    def hold_gradients(self) -> AbstractContextManager[Any]:
        if self._document.reshard_after_forward is False:
            return super().hold_gradients()
        return _switched(self.module.set_requires_all_reduce)


def group_size(document: HsdpStrategy, gang: Gang) -> int:
    """Ranks of one group.

    Raises: UserFault when the gang does not divide into groups of this size.
    """
    by_node = document.shard_size == "node"
    size = gang.local_world_size if document.shard_size == "node" else document.shard_size
    if gang.world_size % size:
        what = f"the {size} ranks of this node" if by_node else f"groups of {size}"
        raise UserFault("/strategy/shard_size", f"the gang's {gang.world_size} ranks do not divide into {what}")
    return size


def check_resharding(reshard: bool | int, shards: int) -> None:
    """Raises: UserFault when the ranks over which parameters are split do not divide into parts of `reshard` ranks."""
    if not isinstance(reshard, bool) and shards % reshard:
        raise UserFault(
            "/strategy/reshard_after_forward",
            f"{reshard} does not divide the {shards} ranks over which parameters are split; use a divisor of {shards}",
        )


def _casts_inputs(module: nn.Module, compute_dtype: torch.dtype) -> bool:
    """Whether what a module is given must be brought into the type in which it computes.

    Not where parameters have it already, so that nothing else is about: torch looks through all arguments of every
    unit for it. A block that knows what it is given keeps its fp32 tables.
    """
    if getattr(module, "takes_mixed_types", False):
        return False
    return any(parameter.dtype != compute_dtype for parameter in module.parameters())


def _local(gradient: Any) -> Tensor:
    local: Tensor = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    return local


@contextmanager
def _switched(switch: Any) -> Iterator[None]:
    switch(False)
    try:
        yield
    finally:
        switch(True)
