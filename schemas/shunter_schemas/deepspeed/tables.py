"""What DeepSpeed 0.19.8 reads from its document, as data; a test compares it with the installed DeepSpeed.

Keys are paths with dots. `DEEPSPEED_VERSION` says from which release the tables were taken.
"""

from __future__ import annotations

from typing import Final

DEEPSPEED_VERSION: Final = "0.19.8"

BATCH_KEYS: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")

TOP_LEVEL: Final = frozenset(
    [
        *BATCH_KEYS,
        *("optimizer", "scheduler", "zero_optimization", "fp16", "bf16", "bfloat16", "torch_autocast"),
        *("gradient_clipping", "prescale_gradients", "gradient_predivide_factor", "gradient_allreduce_op"),
        *("communication_data_type", "seq_parallel_communication_data_type", "data_types"),
        *("managed_gradient_accumulation", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
        *("steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state", "log_level"),
        *("disable_allgather", "disable_python_gc", "dataloader_drop_last", "vocabulary_size"),
        *("activation_checkpointing", "flops_profiler", "comms_logger", "timers", "aio", "autotuning"),
        *("tensorboard", "comet", "wandb", "csv_monitor", "checkpoint", "checkpoint_writer", "datastates_ckpt"),
        *("tensor_parallel", "expert_parallel", "sequence_parallel_size", "data_parallel_size", "pipeline"),
        *("use_data_before_expert_parallelism", "hybrid_engine", "data_efficiency", "weight_quantization", "compile"),
        *("train_iters", "allgather_size", "train_steps"),
    ]
)
"""Members of the document."""

SECTIONS: Final[dict[str, frozenset[str]]] = {
    "zero_optimization": frozenset(
        [
            *("stage", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_partitions"),
            *("use_multi_rank_bucket_allreduce", "allgather_bucket_size", "overlap_comm", "compute_grad_norm"),
            *("load_from_fp32_weights", "elastic_checkpoint", "offload_param", "offload_optimizer", "zenflow"),
            *("sub_group_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"),
            *("stage3_model_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance"),
            *("stage3_gather_16bit_weights_on_model_save", "stage3_module_granularity_threshold"),
            *("stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential", "ignore_unused_parameters"),
            *("legacy_stage1", "round_robin_gradients", "parameter_alignment", "zero_hpz_partition_size"),
            *("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients"),
            *("memory_efficient_linear", "pipeline_loading_checkpoint", "override_module_apply"),
            *("log_trace_cache_warnings", "enable_sanity_checks", "save_muon_momentum_buffer_in_memory"),
            *("leaf_module",),
        ]
    ),
    "zero_optimization.offload_param": frozenset(
        ["device", "nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory"]
    ),
    "zero_optimization.offload_optimizer": frozenset(
        [
            *("device", "nvme_path", "buffer_count", "pin_memory", "pipeline_read", "pipeline_write", "fast_init"),
            *("ratio", "super_offload", "cpuadam_cores_perc"),
        ]
    ),
    "zero_optimization.leaf_module": frozenset(["classes", "names", "name_suffixes"]),
    "zero_optimization.zenflow": frozenset(
        [
            *("topk_ratio", "select_strategy", "select_interval", "update_interval", "overlap_step", "offload"),
            *("auto_ratio", "full_warm_up_rounds", "pt_reserved_cores_perc", "steps_per_epoch"),
        ]
    ),
    "fp16": frozenset(
        [
            *("enabled", "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis"),
            *("consecutive_hysteresis", "min_loss_scale", "fp16_master_weights_and_grads"),
        ]
    ),
    "bf16": frozenset(
        [
            *("enabled", "immediate_grad_update", "check_grad_overflow", "bf16_master_weights_and_grads"),
            *("bf16_optimizer_states",),
        ]
    ),
    "torch_autocast": frozenset(["enabled", "dtype", "lower_precision_safe_modules"]),
    "data_types": frozenset(["grad_accum_dtype", "param_dtype", "buffer_dtype", "keep_in_fp32_modules"]),
    "optimizer": frozenset(["type", "params", "legacy_fusion"]),
    "scheduler": frozenset(["type", "params"]),
    "activation_checkpointing": frozenset(
        [
            *("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "number_checkpoints"),
            *("synchronize_checkpoint_boundary", "profile"),
        ]
    ),
    "flops_profiler": frozenset(
        [
            *("enabled", "recompute_fwd_factor", "profile_step", "module_depth", "top_modules", "detailed"),
            *("output_file",),
        ]
    ),
    "comms_logger": frozenset(["enabled", "prof_all", "prof_ops", "verbose", "debug"]),
    "tensorboard": frozenset(["enabled", "output_path", "job_name"]),
    "wandb": frozenset(["enabled", "group", "team", "project"]),
    "csv_monitor": frozenset(["enabled", "output_path", "job_name"]),
    "comet": frozenset(
        [
            *("enabled", "samples_log_interval", "project", "workspace", "api_key", "experiment_name"),
            *("experiment_key", "online", "mode"),
        ]
    ),
    "aio": frozenset(
        ["block_size", "queue_depth", "intra_op_parallelism", "single_submit", "overlap_events", "use_gds"]
    ),
}
"""Members of the parts whose members are all known. Parts that are not named here are not looked into."""

ALSO_BY_FIELD_NAME: Final = "stage3_"
"""Keys of `zero_optimization` with this beginning are read without it, too."""

REMOVED: Final[dict[str, str]] = {
    "nebula": "Nebula checkpoints are gone",
    "compression_training": "the compression library is gone",
    "amp": "Apex AMP is gone; use fp16, bf16 or torch_autocast",
    "quantize_training": "mixture-of-quantization is gone",
    "sparse_gradients": "gradients of embeddings made with sparse=True are reduced sparsely by themselves",
    "eigenvalue": "it belonged to mixture-of-quantization, which is gone",
    "sparse_attention": "sparse attention is gone",
    "elasticity": "elastic training is gone; the service restarts with another number of ranks by itself",
    "graph_harvesting": "it is gone",
    "curriculum_learning": "use data_efficiency.data_sampling.curriculum_learning",
    "progressive_layer_drop": "it is gone",
    "zero_optimization.mics_shard_size": "MiCS is gone; use strategy hsdp, or zero_hpz_partition_size",
    "zero_optimization.mics_hierarchical_params_gather": "MiCS is gone",
    "zero_optimization.zeropp_loco_param": "LoCo is gone",
}
"""Keys that DeepSpeed refuses since their features were taken out, and what to do instead."""

DEPRECATED: Final[dict[str, str]] = {
    "zero_optimization.cpu_offload": 'offload_optimizer: {"device": "cpu"}',
    "zero_optimization.cpu_offload_param": 'offload_param: {"device": "cpu"}',
    "zero_optimization.cpu_offload_use_pin_memory": "pin_memory in offload_optimizer or offload_param",
    "zero_optimization.cpu_offload_params": 'offload_param: {"device": "cpu"}',
    "zero_optimization.stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
    "bfloat16": "bf16",
    "allgather_size": "zero_optimization.allgather_bucket_size",
    "train_micro_batch_size": "train_micro_batch_size_per_gpu",
    "disable_allgather": "zero_optimization.allgather_partitions",
}
"""Old keys and what has taken their place."""

STAGE_3_ONLY: Final = frozenset(
    [
        "offload_param",
        "sub_group_size",
        "zero_hpz_partition_size",
        "zero_quantized_weights",
        "zero_quantized_nontrainable_weights",
        "memory_efficient_linear",
        "leaf_module",
    ]
)
"""Keys of `zero_optimization` that mean nothing below stage 3, besides all that begin with `stage3_`."""

STAGE_3_OFFLOAD_ONLY: Final[dict[str, object]] = {"ratio": 1.0, "super_offload": False, "cpuadam_cores_perc": 0.8}
"""Keys of `offload_optimizer` that need stage 3, and the values at which they do nothing."""

OPTIMIZERS: Final = ("Adagrad", "Adam", "AdamW", "Lamb", "Lion", "MuAdam", "MuAdamW", "MuSGD", "Muon")
"""DeepSpeed's own names, in any case; other names are those of `torch.optim`."""

OFFLOAD_OPTIMIZERS: Final = ("adam", "adamw", "adagrad", "lion", "muon")
"""Those with an implementation for offloaded state, in lower case."""

REMOVED_OPTIMIZERS: Final = ("OneBitAdam", "OneBitLamb", "ZeroOneAdam")

TRAINING_OPTIMIZERS: Final[dict[str, str]] = {
    "adam": "Adam",
    "adamw": "AdamW",
    "adagrad": "Adagrad",
    "lion": "Lion",
    "sgd": "SGD",
    "rmsprop": "RMSprop",
    "adamax": "Adamax",
    "nadam": "NAdam",
    "radam": "RAdam",
    "adadelta": "Adadelta",
}
"""Optimizers that a `training` takes from a DeepSpeed document: lower case to the name to write."""

SCHEDULERS: Final[dict[str, frozenset[str]]] = {
    "LRRangeTest": frozenset(
        [
            *("lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate"),
            *("lr_range_test_staircase", "last_batch_iteration"),
        ]
    ),
    "OneCycle": frozenset(
        [
            *("cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size"),
            *("cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum"),
            *("cycle_min_mom", "cycle_max_mom", "decay_mom_rate", "last_batch_iteration"),
        ]
    ),
    "WarmupLR": frozenset(
        ["warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "last_batch_iteration"]
    ),
    "WarmupDecayLR": frozenset(
        [
            *("total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"),
            *("last_batch_iteration",),
        ]
    ),
    "WarmupCosineLR": frozenset(
        [
            *("total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type"),
            *("last_batch_iteration",),
        ]
    ),
}
"""DeepSpeed's own schedulers and their parameters."""

ZERO_OPTIMIZERS: Final = ("adam", "adamw", "adagrad", "lion", "muon")
"""Those that ZeRO takes without `zero_allow_untested_optimizer`, in lower case."""

TORCH_OPTIMIZERS: Final = (
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam"),
    *("RMSprop", "Rprop", "SGD", "SparseAdam"),
)
TORCH_SCHEDULERS: Final = (
    *("ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LinearLR"),
    *("MultiStepLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "StepLR"),
)
"""Of `torch.optim` and `torch.optim.lr_scheduler` (2.13): what is not DeepSpeed's own is looked up there."""

_ADAM: Final = frozenset(
    [
        *("lr", "betas", "eps", "weight_decay", "amsgrad", "adam_w_mode", "torch_adam", "bias_correction"),
        *("fp32_optimizer_states", "fused", "foreach"),
    ]
)
TRAINING_PARAMETERS: Final[dict[str, frozenset[str]]] = {
    "adam": _ADAM,
    "adamw": _ADAM,
    "adagrad": frozenset(["lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value"]),
    "lion": frozenset(["lr", "betas", "weight_decay"]),
    "sgd": frozenset(["lr", "momentum", "dampening", "weight_decay", "nesterov", "fused", "foreach"]),
}
"""Parameters of optimizers in a `training`, by their names in lower case."""
