"""A decoder-only transformer in the shape of Llama: RMSNorm, rotary positions, SwiGLU, grouped-query attention.

Module names are those of Hugging Face's `LlamaForCausalLM`, so that an exported file loads there as it is.
Shapes: B batch, T positions, D width, H heads, K key and value heads, E width of a head, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shunter_trainer.data.samples import IGNORED
from shunter_trainer.models.materialise import Filler
from shunter_trainer.seeds import named_generator

_INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that make a transformer."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int
    tied_embeddings: bool = False
    norm_eps: float = 1e-5
    rope_theta: float = 10_000.0

    @property
    def head_width(self) -> int:
        """E."""
        return self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """The exact number of parameters.

        A block has q and o (hidden² each), k and v (hidden x K·E each), three feed-forward matrices (hidden x ffn each)
        and two norms; around them stand the embedding, the last norm and the head (none of its own when tied).
        """
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * self.head_width
        block = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        embeddings = self.vocab * self.hidden * (1 if self.tied_embeddings else 2)
        return self.layers * block + self.hidden + embeddings


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    takes_mixed_types = True
    """The rotary tables stay fp32 whatever the rest is computed in; see `strategies/sharded.py`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        kv_width = shape.kv_heads * shape.head_width
        self.head_width = shape.head_width
        self.grouped = shape.kv_heads != shape.heads
        self.q_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x_BTD: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
        """Attend, each position to itself and those before it."""
        q_BHTE = rotate(self._heads(self.q_proj(x_BTD)), cos_TE, sin_TE)
        k_BKTE = rotate(self._heads(self.k_proj(x_BTD)), cos_TE, sin_TE)
        v_BKTE = self._heads(self.v_proj(x_BTD))
        out_BHTE = F.scaled_dot_product_attention(q_BHTE, k_BKTE, v_BKTE, is_causal=True, enable_gqa=self.grouped)
        out: Tensor = self.o_proj(out_BHTE.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.view(*x_BTD.shape[:-1], -1, self.head_width).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Each position by itself."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD))
        return out


class Block(nn.Module):
    """One layer, normalised before each part."""

    takes_mixed_types = True

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.mlp = FeedForward(shape)

    def forward(self, x_BTD: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
        """Attention, then feed-forward, each added to the residual stream."""
        x_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), cos_TE, sin_TE)
        out: Tensor = x_BTD + self.mlp(self.post_attention_layernorm(x_BTD))
        return out


class Decoder(nn.Module):
    """Embedding, blocks and the last norm."""

    cos_TE: Tensor
    sin_TE: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        # Without nn.Embedding's own first values, whose meta kernel alone would load sympy (0.4 s).
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden, _weight=torch.empty(shape.vocab, shape.hidden))
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.register_buffer("cos_TE", torch.empty(shape.context, shape.head_width), persistent=False)
        self.register_buffer("sin_TE", torch.empty(shape.context, shape.head_width), persistent=False)

    def forward(self, input_ids_BT: Tensor) -> Tensor:
        """Token ids to the last hidden states."""
        x_BTD = self.embed_tokens(input_ids_BT)
        length = input_ids_BT.shape[1]
        cos_TE, sin_TE = self.cos_TE[:length], self.sin_TE[:length]
        for layer in self.layers:
            x_BTD = layer(x_BTD, cos_TE, sin_TE)
        out: Tensor = self.norm(x_BTD)
        return out


class Transformer(nn.Module):
    """The language model, without values: build it on the meta device and have it filled by `first_values`.

    `labels` align with `input_ids`: they are shifted here, as in Hugging Face's models.
    """

    _no_split_modules = ("Block",)

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """`{"loss"}` when labels are given, else `{"logits"}`."""
        hidden_BTD = self.model(input_ids)
        if labels is None:
            return {"logits": self.lm_head(hidden_BTD)}
        # The last position has no next token: its logits are not computed at all.
        logits = self.lm_head(hidden_BTD[:, :-1])
        # In fp32 whatever the model computes in: bf16 would keep three digits of the loss.
        logits = logits.flatten(0, 1).float()
        return {"loss": F.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=IGNORED)}


def first_values(shape: Shape, seed: int) -> Filler:
    """The filler of a new transformer: matrices drawn from a normal distribution, norms at one."""

    def fill(module: nn.Module, names: Mapping[str, str]) -> None:
        if isinstance(module, Decoder):
            tables = rotary_table(shape.context, shape.head_width, shape.rope_theta)
            module.cos_TE.copy_(tables[0])
            module.sin_TE.copy_(tables[1])
            return
        for own, name in names.items():
            parameter: Tensor = getattr(module, own)
            if parameter.ndim > 1:
                parameter.normal_(std=_std(shape, name), generator=named_generator(seed, name, parameter.device))
            else:
                parameter.fill_(1.0)

    return fill


def _std(shape: Shape, name: str) -> float:
    # Two parts of each block add to the residual stream, whose variance would grow with depth otherwise.
    ends_block = name.endswith(("o_proj.weight", "down_proj.weight"))
    return _INIT_STD / math.sqrt(2 * shape.layers) if ends_block else _INIT_STD


def rotary_table(length: int, width: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles, in Llama's layout: both halves of a head turn by the same angles."""
    frequencies = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x_BHTE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
    """Rotary position embedding."""
    first, second = x_BHTE.chunk(2, dim=-1)
    turned = x_BHTE * cos_TE + torch.cat((-second, first), dim=-1) * sin_TE
    return turned.to(x_BHTE.dtype)


def llama_config(shape: Shape) -> dict[str, Any]:
    """The `config.json` by which `transformers` builds the same model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "head_dim": shape.head_width,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": _INIT_STD,
        "intermediate_size": shape.ffn,
        "max_position_embeddings": shape.context,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": shape.tied_embeddings,
        "vocab_size": shape.vocab,
    }
