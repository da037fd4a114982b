"""The sizes of a model that memory and time depend on."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A stack of alike blocks over tokens (or patches), with what stands before and behind it.

    Counts are of the whole model. `parameters` is exact where `is_exact`.
    """

    name: str
    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    ffn: int
    """Inner width of the feed-forward part that one token goes through: with experts, that of the chosen ones."""
    gated: bool
    """Three feed-forward matrices (SwiGLU) rather than two."""
    vocab: int
    """Logits of one position; of a classifier, its classes."""
    lookup_parameters: int
    """Parameters that are only looked up, never multiplied: embeddings that are no head too."""
    block_parameters: int
    """Of one block, the largest."""
    idle_parameters: int = 0
    """Of experts that a token does not go through."""
    composite_norms: bool = False
    """Norms written out in fp32 operations, as `transformers` does for RMSNorm: they leave more behind."""
    eager_attention: bool = False
    """Attention that writes its scores out, which take memory with the square of the sequence."""
    dropout: bool = False
    frozen_parameters: int = 0
    adapter_width: int = 0
    """Rank of adapters times the number of adapted matrices of a block."""
    causal: bool = True
    loss_per_token: bool = True
    """Logits at every position; a classifier has them once a sample."""
    is_exact: bool = True

    @property
    def trained_parameters(self) -> int:
        """What gets gradients and optimizer state."""
        return self.parameters - self.frozen_parameters

    @property
    def outer_parameters(self) -> int:
        """Outside the blocks: embeddings, last norm, head."""
        return max(0, self.parameters - self.layers * self.block_parameters)

    @property
    def active_parameters(self) -> int:
        """What one token goes through, lookups included."""
        return self.parameters - self.idle_parameters

    @property
    def query_width(self) -> int:
        """Of all heads together."""
        return self.heads * self.head_width

    @property
    def kv_width(self) -> int:
        """Of all key heads together; values are as wide."""
        return self.kv_heads * self.head_width


def with_lora(shape: ModelShape, rank: int, matrices: int, adapter_parameters: int) -> ModelShape:
    """The model with its own weights frozen and adapters beside `matrices` linear layers of each block."""
    return replace(
        shape,
        parameters=shape.parameters + adapter_parameters,
        frozen_parameters=shape.parameters,
        block_parameters=shape.block_parameters + adapter_parameters // max(1, shape.layers),
        adapter_width=rank * matrices,
    )
