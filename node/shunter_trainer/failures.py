"""Why a rank ends without success, in the words that its agent reads.

TrainingFailure                 carries a reason (a slug) and a message for people
├── UserFault                   the document or the user's own code is wrong; names the place in the document
├── NonFinite                   the loss or the gradients left the real numbers and stayed there
├── LossSpiked                  the loss jumped, and the document asks to end then
├── PeerLost                    another rank vanished; that rank, or its node, is the cause
└── CheckpointFault             a checkpoint could not be written or does not belong to this training
    └── DiskFull                since there is no room for it on this node
        └── PeerDiskFull        or on that of another rank, which it names
"""

from __future__ import annotations

import re


class TrainingFailure(Exception):
    """The training cannot go on."""

    reason = "internal_error"


class UserFault(TrainingFailure):
    """What the document asks for cannot be done; `pointer` is the JSON pointer of the part to change."""

    reason = "user_error"

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer}: {message}")
        self.pointer = pointer
        self.message = message


class NonFinite(TrainingFailure):
    """Loss or gradients are not finite."""

    reason = "non_finite_loss"


class LossSpiked(TrainingFailure):
    """The loss jumped far above those before it."""

    reason = "loss_spike"


class PeerLost(TrainingFailure):
    """Another rank is gone."""

    reason = "peer_lost"


class CheckpointFault(TrainingFailure):
    """A checkpoint could not be written, or cannot be read into this training."""

    reason = "checkpoint_failed"


class DiskFull(CheckpointFault):
    """There is no room for a checkpoint."""

    reason = "disk_full"


class PeerDiskFull(DiskFull):
    """There was no room for another rank's part of a checkpoint."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


OUT_OF_MEMORY = "out_of_memory"

_MEMORY_TEXT = re.compile(r"DefaultCPUAllocator: (can't|not enough)|CUDA out of memory|CUDA error: out of memory")
_MEMORY_ADVICE = (
    "Lower workload.batch.micro_size (accumulation follows by itself), set workload.activation_checkpointing to "
    '"full", or shorten the sequences.'
)
_ADVICE = (
    (
        "Expected to have finished reduction in the prior iteration",
        "\nShunter: some parameters get no gradient; set strategy.find_unused_parameters to true.",
    ),
    (
        "Sharding propagation failed",
        "\nShunter: the optimizer, or the model, does with parameters what torch cannot do with split ones; use "
        "another optimizer, or strategy ddp.",
    ),
)
_PEER_ERRORS = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError"})
_PEER_TEXT = re.compile(
    r"gloo/transport|gloo/.*(Timed out|timeout)|Connection (closed by peer|reset by peer|refused)|Broken pipe|NCCL",
    re.IGNORECASE,
)


def explain(error: BaseException) -> tuple[str, str]:
    """Reason and message of whatever ended the training, also of what torch and the user's code raised."""
    if isinstance(error, TrainingFailure):
        return error.reason, str(error)
    text = f"{type(error).__name__}: {error}".strip()
    if is_out_of_memory(error):
        return OUT_OF_MEMORY, f"{_first_line(text)} {_MEMORY_ADVICE}"
    if _is_lost_peer(error):
        return PeerLost.reason, f"Another rank is gone: {_first_line(text)}"
    advice = next((advice for pattern, advice in _ADVICE if pattern in text), "")
    return UserFault.reason, f"{text}{advice}"


def speaks_of_lost_peer(text: str) -> bool:
    """Whether this message of torch means that a connection to another rank broke."""
    return bool(_PEER_TEXT.search(text))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the host or of a GPU."""
    # By name, since `torch.OutOfMemoryError` cannot be imported where torch itself failed.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and bool(_MEMORY_TEXT.search(str(error))))


def _is_lost_peer(error: BaseException) -> bool:
    if type(error).__name__ in _PEER_ERRORS:
        return True
    return isinstance(error, RuntimeError) and speaks_of_lost_peer(str(error))


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip(".") + "."
