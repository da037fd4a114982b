"""From a `transformers` configuration to sizes: parameters counted matrix by matrix, as its classes make them.

A configuration leaves out what its class has a default for; the defaults below are those of the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from shunter_planner.models.shape import ModelShape

Config = Mapping[str, Any]


class UnknownArchitecture(Exception):
    """No rule counts this `model_type`."""


def shape_of_config(config: Config, task: str = "causal_lm") -> ModelShape:
    """The sizes of the model that `transformers` builds from a configuration.

    Raises:
        UnknownArchitecture: there is no rule for its `model_type`, or the configuration does not say its sizes.
    """
    text = config.get("text_config")
    kind = str(config.get("model_type", ""))
    if isinstance(text, Mapping) and kind not in _RULES:
        config, kind = text, str(text.get("model_type", ""))
    rule = _RULES.get(kind)
    if rule is None:
        raise UnknownArchitecture(f"no rule counts the parameters of a {kind or 'model without model_type'}")
    return rule(config, task)


def known_architectures() -> list[str]:
    """Every `model_type` that has a rule."""
    return sorted(_RULES)


def _decoder(config: Config, task: str, *, qkv_bias: bool = False, head_norms: bool = False) -> ModelShape:
    """Llama and its relatives: RMSNorm, rotary positions, gated feed-forward, grouped-query attention, experts."""
    kind = str(config["model_type"])
    layers, hidden = _int(config, "num_hidden_layers", 32), _int(config, "hidden_size", 4096)
    heads = _int(config, "num_attention_heads", 32)
    kv_heads = _int(config, "num_key_value_heads", _KV_HEADS.get(kind, heads))
    width = _int(config, "head_dim", _HEAD_DIM.get(kind, hidden // heads))
    ffn, vocab = _int(config, "intermediate_size", _FFN.get(kind, 11008)), _int(config, "vocab_size", 32000)
    bias = bool(config.get("attention_bias", False))
    attention = hidden * width * (2 * heads + 2 * kv_heads)
    if bias or qkv_bias:
        attention += width * (heads + 2 * kv_heads) + (hidden if bias else 0)
    if head_norms:
        attention += 2 * width
    experts, chosen = _experts(config, kind)
    expert_ffn = _int(config, "moe_intermediate_size", ffn) if experts else ffn
    one = 3 * hidden * expert_ffn + (2 * expert_ffn + hidden if config.get("mlp_bias") else 0)
    norms = hidden * (4 if kind in _FOUR_NORMS else 2)
    block = attention + norms + (experts * (one + hidden) if experts else one)
    tied = bool(config.get("tie_word_embeddings", kind in _TIED))
    table = vocab * hidden
    head = _head(config, task, table, hidden, tied)
    return ModelShape(
        name=kind,
        parameters=layers * block + hidden + table + head,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_width=width,
        ffn=expert_ffn * (chosen or 1),
        gated=True,
        vocab=_logits(config, task, vocab),
        lookup_parameters=0 if tied and task == "causal_lm" else table,
        block_parameters=block,
        idle_parameters=layers * (experts - chosen) * one,
        composite_norms=True,
        eager_attention=config.get("attn_implementation") == "eager",
        dropout=float(config.get("attention_dropout") or 0) > 0,
        loss_per_token=task == "causal_lm",
    )


def _gpt2(config: Config, task: str) -> ModelShape:
    layers, hidden, heads = _int(config, "n_layer", 12), _int(config, "n_embd", 768), _int(config, "n_head", 12)
    ffn = _int(config, "n_inner", 4 * hidden)
    vocab, positions = _int(config, "vocab_size", 50257), _int(config, "n_positions", 1024)
    block = 4 * hidden + (hidden * 3 * hidden + 3 * hidden) + (hidden * hidden + hidden)
    block += hidden * ffn + ffn + ffn * hidden + hidden
    tied = bool(config.get("tie_word_embeddings", True))
    table = vocab * hidden
    head = _head(config, task, table, hidden, tied)
    return ModelShape(
        name="gpt2",
        parameters=layers * block + 2 * hidden + table + positions * hidden + head,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_width=hidden // heads,
        ffn=ffn,
        gated=False,
        vocab=_logits(config, task, vocab),
        lookup_parameters=positions * hidden + (0 if tied and task == "causal_lm" else table),
        block_parameters=block,
        eager_attention=config.get("attn_implementation") == "eager",
        dropout=float(config.get("resid_pdrop", 0.1) or 0) > 0,
        loss_per_token=task == "causal_lm",
    )


def _neox(config: Config, task: str) -> ModelShape:
    layers, hidden = _int(config, "num_hidden_layers", 44), _int(config, "hidden_size", 6144)
    heads, ffn = _int(config, "num_attention_heads", 64), _int(config, "intermediate_size", 24576)
    vocab = _int(config, "vocab_size", 50432)
    bias = bool(config.get("attention_bias", True))
    block = 4 * hidden + 4 * hidden * hidden + (4 * hidden if bias else 0) + 2 * hidden * ffn + ffn + hidden
    tied = bool(config.get("tie_word_embeddings", False))
    table = vocab * hidden
    head = _head(config, task, table, hidden, tied)
    return _plain(
        "gpt_neox", config, task, (layers, hidden, heads, ffn), block, layers * block + 2 * hidden + table + head
    )


def _bert(config: Config, task: str) -> ModelShape:
    layers, hidden = _int(config, "num_hidden_layers", 12), _int(config, "hidden_size", 768)
    heads, ffn = _int(config, "num_attention_heads", 12), _int(config, "intermediate_size", 3072)
    kind = str(config["model_type"])
    positions = _int(config, "max_position_embeddings", 512)
    tables = _int(config, "vocab_size", 30522) + positions + _int(config, "type_vocab_size", 2)
    block = 4 * hidden * hidden + 4 * hidden + 2 * hidden * ffn + ffn + hidden + 4 * hidden
    parameters = tables * hidden + 2 * hidden + layers * block
    dense, labels = hidden * hidden + hidden, _labels(config)
    if task != "causal_lm":  # BERT's pooler, RoBERTa's dense layer of the head
        parameters += dense + labels * hidden + labels
    else:
        vocab = _int(config, "vocab_size", 30522)
        parameters += dense + 2 * hidden + vocab
    return _plain(kind, config, task, (layers, hidden, heads, ffn), block, parameters)


def _vit(config: Config, task: str) -> ModelShape:
    layers, hidden = _int(config, "num_hidden_layers", 12), _int(config, "hidden_size", 768)
    heads, ffn = _int(config, "num_attention_heads", 12), _int(config, "intermediate_size", 3072)
    size, patch = _int(config, "image_size", 224), _int(config, "patch_size", 16)
    patches = (size // patch) ** 2 + 1
    bias = 3 * hidden if config.get("qkv_bias", True) else 0
    block = 4 * hidden * hidden + bias + hidden + 2 * hidden * ffn + ffn + hidden + 4 * hidden
    stem = patch * patch * _int(config, "num_channels", 3) * hidden + hidden
    labels = _labels(config)
    parameters = stem + hidden + patches * hidden + layers * block + 2 * hidden + labels * hidden + labels
    return _plain("vit", config, task, (layers, hidden, heads, ffn), block, parameters)


def image_tokens(config: Config) -> int:
    """Positions of one picture in a vision transformer."""
    return (_int(config, "image_size", 224) // _int(config, "patch_size", 16)) ** 2 + 1


def _plain(
    name: str, config: Config, task: str, sizes: tuple[int, int, int, int], block: int, parameters: int
) -> ModelShape:
    """A stack with LayerNorm and two feed-forward matrices."""
    layers, hidden, heads, ffn = sizes
    vocab = 0 if name == "vit" else _int(config, "vocab_size", 30522)
    tied = bool(config.get("tie_word_embeddings", name in _TIED)) and task == "causal_lm"
    return ModelShape(
        name=name,
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_width=hidden // heads,
        ffn=ffn,
        gated=False,
        vocab=_logits(config, task, vocab),
        lookup_parameters=0 if tied else vocab * hidden,
        block_parameters=block,
        eager_attention=config.get("attn_implementation") == "eager",
        dropout=float(config.get("hidden_dropout_prob", 0.1 if name in ("bert", "roberta") else 0.0) or 0) > 0,
        causal=name == "gpt_neox",
        loss_per_token=task == "causal_lm",
    )


def _head(config: Config, task: str, table: int, hidden: int, tied: bool) -> int:
    if task != "causal_lm":
        return _labels(config) * hidden
    return 0 if tied else table


def _logits(config: Config, task: str, vocab: int) -> int:
    return vocab if task == "causal_lm" else _labels(config)


def _labels(config: Config) -> int:
    named = config.get("id2label")
    return len(named) if isinstance(named, Mapping) and named else _int(config, "num_labels", 2)


def _experts(config: Config, kind: str) -> tuple[int, int]:
    """How many there are, and how many a token goes through; zeros without any."""
    if kind not in ("mixtral", "qwen3_moe"):
        return 0, 0
    default = 8 if kind == "mixtral" else 128
    total = _int(config, "num_local_experts", _int(config, "num_experts", default))
    return total, _int(config, "num_experts_per_tok", 2 if kind == "mixtral" else 8)


def _int(config: Config, name: str, default: int) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


_TIED: Final = frozenset({"gemma", "gemma2", "bert", "roberta", "gpt2"})
_FOUR_NORMS: Final = frozenset({"gemma2"})
_KV_HEADS: Final = {"mistral": 8, "mixtral": 8, "gemma": 16, "gemma2": 4, "qwen3": 32, "qwen3_moe": 4, "qwen2": 32}
_HEAD_DIM: Final = {"gemma": 256, "gemma2": 256, "qwen3": 128}
_FFN: Final = {"mistral": 14336, "mixtral": 14336, "qwen2": 22016, "qwen3": 22016, "gemma": 24576, "gemma2": 9216}

_RULES: Final[dict[str, Callable[[Config, str], ModelShape]]] = {
    "llama": _decoder,
    "mistral": _decoder,
    "mixtral": _decoder,
    "gemma": _decoder,
    "gemma2": _decoder,
    "qwen2": lambda config, task: _decoder(config, task, qkv_bias=True),
    "qwen3": lambda config, task: _decoder(config, task, head_norms=True),
    "qwen3_moe": lambda config, task: _decoder(config, task, head_norms=True),
    "gpt2": _gpt2,
    "gpt_neox": _neox,
    "bert": _bert,
    "roberta": _bert,
    "vit": _vit,
}
