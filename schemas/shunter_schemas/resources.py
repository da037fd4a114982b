"""`resources`: how many ranks, on what."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, Tag

from shunter_schemas.base import BY_SHAPE, AutoOrPositive, Part, Positive, text_like

Gpus = Annotated[int, Field(ge=1, le=65_536)]
GpuModel = Annotated[str, text_like(r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}$", "must be the name of a GPU model")]


class GpuRange(Part):
    """Between `min` and `max` GPUs; the planner picks."""

    min: Gpus = Field(description="The fewest GPUs that will do.", examples=[8])
    max: Gpus = Field(description="The most GPUs to use.", examples=[16])


class GangShape(NamedTuple):
    """How the ranks lie on nodes. A part that the document leaves open is None."""

    num_nodes: int | None
    ranks_per_node: int | None
    world_size: int


class Resources(Part):
    """`gpus` alone, any two of `gpus`, `nodes` and `gpus_per_node`, or `cpu_processes` with or without `nodes`."""

    gpus: Annotated[Annotated[Gpus, Tag("number")] | Annotated[GpuRange, Tag("object")], BY_SHAPE] | None = Field(
        default=None,
        description="GPUs in all, one rank each.",
        examples=[16, {"min": 8, "max": 16}],
    )
    nodes: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None, description="Number of nodes.", examples=[2]
    )
    gpus_per_node: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="GPUs of each node.", examples=[8]
    )
    cpu_processes: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Ranks on CPUs of each node, instead of GPUs.", examples=[2]
    )
    gpu_models: Annotated[tuple[GpuModel, ...], Field(max_length=64)] = Field(
        default=(), description="GPU models that will do. Empty: any.", examples=[["H100", "A100-80GB"]]
    )
    min_gpu_memory_gib: Positive | None = Field(
        default=None, description="Least memory of a GPU, by the nominal size of the card.", examples=[80]
    )
    min_cpus_per_gpu: Positive | None = Field(default=None, description="Least CPU cores for each GPU.", examples=[8])
    min_memory_gib_per_gpu: Positive | None = Field(
        default=None, description="Least main memory for each GPU.", examples=[64]
    )
    disk_gib: AutoOrPositive = Field(
        default="auto",
        description="Disk of each node. `auto`: from inputs and checkpoints.",
        examples=["auto", 500],
    )
    interconnect: Literal["any", "ethernet", "rdma"] = Field(
        default="any",
        description="Network between nodes, at least. `ethernet`: a private one, known to take any port. `rdma`: "
        "InfiniBand, RoCE or EFA. `any`: also one of which nothing is known.",
        examples=["any"],
    )
    capacity: Literal["on_demand", "spot", "spot_then_on_demand", "reserved"] = Field(
        default="on_demand",
        description="What kind of capacity is bought.",
        examples=["on_demand"],
    )

    def gang(self) -> GangShape:
        """How many ranks, and how they lie on nodes as far as the document says.

        Raises:
            ValueError: the document leaves the number open or contradicts itself; `shunter_schemas.checks` refuses
                such documents with pointers.
        """
        if self.cpu_processes is not None:
            num_nodes = self.nodes or 1
            return GangShape(num_nodes, self.cpu_processes, num_nodes * self.cpu_processes)
        if isinstance(self.gpus, GpuRange):
            raise ValueError("the number of GPUs is a range")
        return _gpu_gang(self.gpus, self.nodes, self.gpus_per_node)


def _gpu_gang(gpus: int | None, nodes: int | None, per_node: int | None) -> GangShape:
    if gpus is None:
        if nodes is None or per_node is None:
            raise ValueError("the number of ranks is not given")
        return GangShape(nodes, per_node, nodes * per_node)
    if nodes is None:
        nodes = None if per_node is None else gpus // per_node
    elif per_node is None:
        per_node = gpus // nodes
    if nodes is not None and per_node is not None and nodes * per_node != gpus:
        raise ValueError("`gpus`, `nodes` and `gpus_per_node` do not agree")
    return GangShape(nodes, per_node, gpus)
