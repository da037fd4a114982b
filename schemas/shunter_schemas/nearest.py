"""The nearest known name to one that is not known: for faults in documents and on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant, or None when nothing is near."""
    folded = name[:64].casefold()
    by_folded = {candidate.casefold(): candidate for candidate in known}
    for meant in _ELSEWHERE.get(folded.replace("-", "_"), ()):
        if meant in by_folded:
            return by_folded[meant]
    found = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing."""
    guess = nearest(name, known)
    return f"; did you mean `{guess}`?" if guess else ""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_OURS: Final[dict[str, tuple[str, ...]]] = {
    "global_size": _words("train_batch_size batch_size global_batch_size total_batch_size"),
    "micro_size": _words(
        "train_micro_batch_size_per_gpu per_device_train_batch_size micro_batch_size device_batch_size"
    ),
    "steps": _words("max_steps num_steps total_steps train_steps max_iters train_iters num_training_steps"),
    "epochs": _words("num_train_epochs num_epochs max_epochs"),
    "lr": _words("learning_rate"),
    "gradient_clip_norm": _words("max_grad_norm gradient_clipping grad_clip clip_grad_norm gradient_clip_val"),
    "gradient_clipping": _words("max_grad_norm grad_clip clip_grad_norm gradient_clip_norm"),
    "precision": _words("mixed_precision dtype torch_dtype amp"),
    "schedule": _words("scheduler lr_scheduler lr_scheduler_type"),
    "activation_checkpointing": _words("gradient_checkpointing recompute"),
    "compile": _words("torch_compile"),
    "every_steps": _words("save_steps eval_steps save_every eval_every"),
    "keep": _words("save_total_limit keep_last"),
    "sequence_length": _words("seq_len seq_length max_length max_seq_length block_size"),
    "layers": _words("n_layer n_layers num_layers num_hidden_layers"),
    "hidden": _words("n_embd d_model hidden_size"),
    "heads": _words("n_head n_heads num_heads num_attention_heads"),
    "kv_heads": _words("n_kv_heads num_key_value_heads"),
    "ffn": _words("intermediate_size d_ff ffn_hidden_size"),
    "vocab": _words("vocab_size"),
    "context": _words("max_position_embeddings n_positions n_ctx"),
    "rank": _words("r lora_r"),
    "alpha": _words("lora_alpha"),
    "dropout": _words("lora_dropout"),
    "targets": _words("target_modules"),
    "fp32": _words("float32 float single 32"),
    "bf16": _words("bfloat16 mixed"),
    "fp16": _words("float16 half"),
    "deepspeed": _words("zero zero0 zero1 zero2 zero3 zero_0 zero_1 zero_2 zero_3 ds"),
    "fsdp": _words("fsdp2 full_shard fully_shard"),
    "hsdp": _words("hybrid_shard"),
    "torch": _words("deepspeed python"),
    "gpus": _words("num_gpus n_gpus gpu world_size"),
    "nodes": _words("num_nodes nnodes n_nodes num_machines"),
    "gpus_per_node": _words("nproc_per_node num_gpus_per_node"),
    "cpu_processes": _words("num_processes processes"),
    "arguments": _words("args argv"),
    "variables": _words("env envs env_vars"),
}
"""Our names and DeepSpeed's, each with those that other tools have for the same."""
_ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    theirs: tuple(ours for ours, names in _OURS.items() if theirs in names)
    for theirs in dict.fromkeys(name for names in _OURS.values() for name in names)
}
