"""The muster of a gang: before ranks start on several nodes, these find out whether they reach each other.

The service tells every node to open two ports, and each node of the others as they appear; every node calls every other
one on every address that it has. What comes of it travels in the node's status, so that it is a level and no message.
The service then picks addresses and interfaces, and the master's port, which the master holds until its ranks start.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Endpoint(_Message):
    """An address of the node itself, and the interface that has it. Never the loopback's."""

    address: str = Field(max_length=64)
    interface: str = Field(max_length=64)


class Reach(_Message):
    """What came of calling one other node."""

    node_rank: int
    ticket: str = Field(max_length=64)
    answers: dict[str, str] = Field(default_factory=dict, max_length=64)
    """By address of the other node: empty when each of its ports answered there, else what went wrong."""
    rtt_ms: float | None = None
    """The quickest question and answer."""
    gbit_per_s: float | None = None
    """What one connection carried; measured to the next node of the ring only, by all nodes at once."""


class Muster(_Message):
    """What one node tells of the gathering of a generation."""

    generation: int
    ticket: str = Field(max_length=64)
    """Names this node in this gathering. Whoever answers a call with another one is another machine."""
    endpoints: list[Endpoint] = Field(default_factory=list, max_length=64)
    rendezvous_port: int
    """Held for the ranks' rendezvous, should this node become the master."""
    data_port: int
    """One of those that the kernel gives to programs which do not choose: gloo's and NCCL's are like it."""
    reached: list[Reach] = Field(default_factory=list, max_length=4096)


class Peer(_Message):
    """Another node, as the service tells of it."""

    node_rank: int
    ticket: str
    addresses: list[str]
    rendezvous_port: int
    data_port: int
    measure: bool = False
    """It is the next one of the ring: measure what goes through."""
