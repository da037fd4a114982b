"""accelerate's settings, from its configuration file or its command line.

`accelerate launch` turns its settings into environment variables and then starts ranks as torchrun does. So does the
document: the ranks get the same variables from `environment.variables`, and are started by the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shunter.errors import ShunterError
from shunter.importing.notes import Imported, Kind

ACCELERATE_FLAGS: Final = (
    "cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_parallelism_config", "quiet",
    "debug", "same_network", "module", "no_python", "enable_cpu_affinity", "dynamo_use_fullgraph",
    "dynamo_use_dynamic", "dynamo_use_regional_compilation", "tpu_cluster", "no_tpu_cluster", "tpu_use_sudo",
)  # fmt: skip
"""Options of `accelerate launch` without a value."""

_NOT_NEEDED: Final = frozenset(
    {"machine_rank", "main_process_ip", "main_process_port", "same_network", "rdzv_backend", "rdzv_conf", "gpu_ids"}
    | {"compute_environment", "main_training_function", "downcast_bf16", "tpu_env", "tpu_use_cluster", "tpu_use_sudo"}
    | {"tpu_name", "tpu_zone", "quiet", "tee", "log_dir", "role", "monitor_interval", "multi_gpu", "tpu_vm"}
    | {"command_file", "commands", "deepspeed_multinode_launcher", "deepspeed_hostfile"}
)
_REFUSED: Final[Mapping[str, str]] = {
    "MEGATRON_LM": "Megatron-LM cannot be imported",
    "XLA": "TPUs cannot be had",
    "TPU": "TPUs cannot be had",
    "MULTI_NPU": "NPUs cannot be had",
    "MULTI_XPU": "XPUs cannot be had",
}
_DEEPSPEED: Final[Mapping[str, str]] = {
    "zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_moe_layer_cls_names": "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
}
_FSDP_ODD_NAMES: Final[Mapping[str, str]] = {
    "fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
    "fsdp_backward_prefetch_policy": "FSDP_BACKWARD_PREFETCH",
}
_OTHERS: Final[Mapping[str, str]] = {
    "mixed_precision": "ACCELERATE_MIXED_PRECISION",
    "dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
    "dynamo_mode": "ACCELERATE_DYNAMO_MODE",
    "dynamo_use_fullgraph": "ACCELERATE_DYNAMO_USE_FULLGRAPH",
    "dynamo_use_dynamic": "ACCELERATE_DYNAMO_USE_DYNAMIC",
    "dynamo_use_regional_compilation": "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION",
    "num_cpu_threads_per_process": "OMP_NUM_THREADS",
}
_SWITCHES: Final[Mapping[str, tuple[str, str]]] = {
    "debug": ("ACCELERATE_DEBUG_MODE", "true"),
    "enable_cpu_affinity": ("ACCELERATE_CPU_AFFINITY", "1"),
}
_BEYOND: Final = ("megatron_lm_", "fp8_", "mpirun_", "aws_")
_IN_UPPER_CASE: Final = ("dynamo_backend",)


def take_config(found: Imported, config: Mapping[str, Any]) -> None:
    """A configuration file, as `accelerate config` writes it. It names no program; the caller does.

    Raises:
        ShunterError: it is for another place than machines with GPUs or CPUs.
    """
    if str(config.get("compute_environment", "LOCAL_MACHINE")) != "LOCAL_MACHINE":
        raise ShunterError(f"a configuration for {config['compute_environment']} cannot be imported")
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= {_prefixed(name, key): inner for key, inner in value.items() if inner is not None}
        elif value is not None:
            flat[name] = value
    _take(found, flat, kind=str(flat.pop("distributed_type", "NO")), cpu=_is_true(flat.pop("use_cpu", False)))


def take_launch_options(found: Imported, options: Mapping[str, str]) -> None:
    """The options of `accelerate launch`; flags are there without a value."""
    settings: dict[str, Any] = {name: value or True for name, value in options.items()}
    kinds = {
        "use_deepspeed": "DEEPSPEED",
        "use_fsdp": "FSDP",
        "multi_gpu": "MULTI_GPU",
        "use_megatron_lm": "MEGATRON_LM",
    }
    asked = [kind for name, kind in kinds.items() if settings.pop(name, None)]
    if file := settings.pop("config_file", None):
        found.refused(f"--config_file {file}", "its settings are not in the command; import that file instead")
    _take(found, settings, kind=asked[0] if asked else "NO", cpu=bool(settings.pop("cpu", False)))


def _take(found: Imported, settings: dict[str, Any], *, kind: str, cpu: bool) -> None:
    if kind in _REFUSED:
        raise ShunterError(f"distributed_type {kind}: {_REFUSED[kind]}")
    _take_ranks(found, settings, cpu=cpu or kind == "MULTI_CPU")
    if kind in ("FSDP", "DEEPSPEED"):
        found.variable(f"ACCELERATE_USE_{kind}", "true")
        found.mapped(f"distributed_type {kind}", "environment.variables", found.get("environment.variables"))
    if kind == "FSDP":
        settings.setdefault("fsdp_version", 1)
    for name, value in settings.items():
        _take_one(found, name, value, kind)


def _take_ranks(found: Imported, settings: dict[str, Any], *, cpu: bool) -> None:
    machines, processes = _number(settings.pop("num_machines", 1)), _number(settings.pop("num_processes", None))
    found.on_cpus = found.on_cpus or cpu
    machines = machines or 1
    if processes is None or processes % machines:
        per_node = found.get("resources.gpus_per_node") or 1
        found.ranks("num_processes", machines, per_node, kind=Kind.ASSUMED, why=f"{per_node} a node; it is not given")
    else:
        found.ranks(f"num_machines {machines}, num_processes {processes}", machines, processes // machines)


def _take_one(found: Imported, name: str, value: Any, kind: str) -> None:
    if name == "max_restarts":
        found.mapped(name, "recovery.user_restarts", _number(value) or 0)
    elif name == "deepspeed_config_file" and kind == "DEEPSPEED":
        found.mapped(f"{name} {value}", "strategy", {"kind": "own", "deepspeed_file": str(value)})
        found.variable("ACCELERATE_DEEPSPEED_CONFIG_FILE", "${deepspeed_config}")
    elif name in _DEEPSPEED:
        _only_for("DEEPSPEED", found, name, _DEEPSPEED[name], value, kind)
    elif name.startswith("fsdp_"):
        _only_for("FSDP", found, name, _FSDP_ODD_NAMES.get(name, name.upper()), value, kind)
    elif name in _OTHERS:
        _set(found, name, _OTHERS[name], str(value).upper() if name in _IN_UPPER_CASE else value)
    elif name in _SWITCHES:
        if _is_true(value):
            _set(found, name, *_SWITCHES[name])
    elif name in _NOT_NEEDED:
        found.dropped(name, "the agent starts the ranks and lets them find each other")
    elif name.startswith("parallelism_config_"):
        found.variable("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
        _set(found, name, name.upper(), value)
    else:
        beyond = name.startswith(_BEYOND)
        found.refused(name, "it has no counterpart" if beyond else "it is not known here; nothing was made of it")


def _only_for(kind: str, found: Imported, name: str, variable: str, value: Any, given: str) -> None:
    if given == kind:
        _set(found, name, variable, value)
    else:
        found.dropped(name, f"it is about {kind}, which is not asked for")


def _set(found: Imported, part: str, variable: str, value: Any) -> None:
    words = str(value).lower() if isinstance(value, bool) else str(value)
    found.variable(variable, words)
    found.mapped(part, "environment.variables", found.get("environment.variables"))


def _prefixed(section: str, key: str) -> str:
    """A setting of a section by its name on the command line: `fsdp_config.offload` is `--fsdp_offload`."""
    for name in ("fsdp", "fp8", "dynamo", "parallelism", "megatron_lm"):
        if section == f"{name}_config" and not key.startswith(name):
            return f"{name}_{key}"
    return key


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes")
