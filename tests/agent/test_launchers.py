"""Command lines and environments of ranks, under each launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shunter_agent import processes
from shunter_agent.keeping.layout import Layout
from shunter_agent.launching.launchers import free_port, plan_processes
from shunter_agent.launching.ranks import TORCHRUN, Crew, Ready
from support.agents import JOB, AgentProcess, assignment, command
from support.node_service import NodeService

TWO_NODES = {"node_rank": 1, "num_nodes": 2, "ranks_per_node": 4, "master_addr": "127.0.0.1", "master_port": 29511}
SCRIPT: dict[str, Any] = {"kind": "script", "entrypoint": "run.py", "arguments": ["--a", "${world_size}"]}


def crew(folder: Path, workload: dict[str, Any], resume: str | None = None, **rest: Any) -> Crew:
    layout = Layout(str(folder))
    os.makedirs(layout.generation(3), exist_ok=True)
    ready = Ready("/opt/env/bin/python", "/src", virtual_env="/opt/env", resume=resume)
    return Crew(assignment(workload, generation=3, **{"ranks": TWO_NODES, **rest}), layout, ready, 29511)


@pytest.mark.parametrize(
    ("workload", "count", "argv"),
    [
        ({"kind": "training"}, 4, "-m shunter_trainer"),
        (SCRIPT, 4, "run.py --a 8"),
        ({**SCRIPT, "module": True, "entrypoint": "pkg.train"}, 4, "-m pkg.train --a 8"),
        ({**SCRIPT, "launcher": "plain"}, 1, "run.py --a 8"),
        (
            {**SCRIPT, "launcher": "torchrun"},
            1,
            "-m torch.distributed.run --nnodes 2 --nproc-per-node 4 --node-rank 1 --master-addr 127.0.0.1 "
            f"--master-port 29511 --rdzv-id {JOB}-3 --max-restarts 0 --local-addr 127.0.0.1 run.py --a 8",
        ),
        (
            {**SCRIPT, "launcher": "accelerate"},
            1,
            "-m accelerate.commands.launch --num_machines 2 --num_processes 8 --machine_rank 1 "
            "--main_process_ip 127.0.0.1 --main_process_port 29511 --same_network --mixed_precision no "
            "--dynamo_backend no --multi_gpu run.py --a 8",
        ),
    ],
)
def test_each_launcher_has_its_command_line(tmp_path: Path, workload: dict[str, Any], count: int, argv: str) -> None:
    found = plan_processes(crew(tmp_path, workload))

    assert [" ".join(process.argv) for process in found] == [f"/opt/env/bin/python {argv}"] * count
    assert [rank for process in found for rank in process.ranks] == [4, 5, 6, 7]
    assert [process.rank for process in found] == [4, 5, 6, 7][:count]


FSDP = (
    "--use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false --fsdp_offload_params true "
    "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_transformer_layer_cls_to_wrap Block,Head"
)
SHARDED = {"reshard_after_forward": False, "offload": "cpu", "wrap": ["Block", "Head"]}
MESH = "--parallelism_config_dp_replicate_size {} --parallelism_config_dp_shard_size {}"


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ({"kind": "ddp"}, "--multi_gpu"),
        ({"kind": "fsdp", **SHARDED}, FSDP),
        (
            {"kind": "hsdp", **SHARDED, "shard_size": "node"},
            FSDP.replace("--use_fsdp", "--use_fsdp --use_parallelism_config") + " " + MESH.format(2, 4),
        ),
        (
            {"kind": "hsdp", **SHARDED, "shard_size": 2},
            FSDP.replace("--use_fsdp", "--use_fsdp --use_parallelism_config") + " " + MESH.format(4, 2),
        ),
    ],
)
def test_accelerate_is_told_the_strategy(tmp_path: Path, strategy: dict[str, Any], words: str) -> None:
    workload = {**SCRIPT, "launcher": "accelerate", "arguments": ["${accelerate_config}"]}
    ranks = {**TWO_NODES, "gpus": [0, 1, 2, 3]}

    (process,) = plan_processes(crew(tmp_path, workload, ranks=ranks, document={"strategy": strategy}))

    argv = " ".join(process.argv)
    assert "--num_machines 2 --num_processes 8 --machine_rank 1 --main_process_ip 127.0.0.1" in argv
    assert f" --dynamo_backend no {words} run.py {tmp_path}/generations/3/accelerate.json" in argv
    assert "ACCELERATE_USE_CPU" not in process.environment
    config = json.loads((tmp_path / "generations" / "3" / "accelerate.json").read_text())
    kind = {"ddp": "MULTI_GPU"}.get(strategy["kind"], "FSDP")
    assert (config["distributed_type"], config["machine_rank"], config["num_machines"]) == (kind, 1, 2)
    told = {**config.get("fsdp_config", {}), **config.get("parallelism_config", {})}
    assert all(f"--{name} {value}" in argv for name, value in told.items())
    assert bool(told) == (kind == "FSDP")


def test_accelerate_joins_ranks_on_cpus_too(tmp_path: Path) -> None:
    (process,) = plan_processes(crew(tmp_path, {**SCRIPT, "launcher": "accelerate"}))

    assert process.environment["ACCELERATE_USE_CPU"] == "true"


@pytest.mark.parametrize(("launcher", "count"), [("torch", 4), ("plain", 1)])
def test_a_command_is_plain_argv(tmp_path: Path, launcher: str, count: int) -> None:
    workload = command("bash", "${output_dir}/run.sh", arguments=["$HOME"], launcher=launcher)

    found = plan_processes(crew(tmp_path, workload))

    assert [process.argv for process in found] == [("bash", f"{tmp_path}/outputs/3/run.sh", "$HOME")] * count
    assert all(process.signal_group for process in found)


@pytest.mark.parametrize("workload", [command("x", launcher="torchrun"), {"kind": "script"}, command("${nothing}")])
def test_what_cannot_be_launched_is_an_error(tmp_path: Path, workload: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"command|entrypoint|nothing"):
        plan_processes(crew(tmp_path, workload))


def test_a_rank_gets_torchruns_variables_and_ours(tmp_path: Path) -> None:
    ranks = {**TWO_NODES, "gpus": [4, 5, 6, 7], "cpu_threads_per_rank": 3, "interface": "eth1"}
    variables = {"PATH": "/mine", "HOME_DIR": "${inputs.base}", "RANK": "99", "SHUNTER_JOB_ID": "forged"}
    document = {"inputs": {"base": {}}, "environment": {"variables": variables}}

    process = plan_processes(crew(tmp_path, SCRIPT, ranks=ranks, document=document, resume="/r/step-1"))[2]

    found, home = process.environment, str(tmp_path)
    expected = {
        **{"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"},
        **{
            "GROUP_RANK": "1",
            "GROUP_WORLD_SIZE": "2",
            "ROLE_RANK": "6",
            "ROLE_WORLD_SIZE": "8",
            "ROLE_NAME": "default",
        },
        **{
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29511",
            "OMP_NUM_THREADS": "3",
            "CUDA_VISIBLE_DEVICES": "4,5,6,7",
        },
        **{"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": f"{JOB}-3"},
        **{"TORCHELASTIC_USE_AGENT_STORE": "False", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "PYTHONUNBUFFERED": "1"},
        "TORCHELASTIC_ERROR_FILE": f"{home}/generations/3/error-rank-6.json",
        **{"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"},
        **{"SHUNTER_JOB_ID": JOB, "SHUNTER_GENERATION": "3", "SHUNTER_RESUME_DIR": "/r/step-1"},
        "SHUNTER_DOCUMENT": f"{home}/generations/3/document.json",
        "SHUNTER_INPUTS_DIR": f"{home}/inputs",
        "SHUNTER_CHECKPOINT_DIR": f"{home}/checkpoints",
        "SHUNTER_OUTPUT_DIR": f"{home}/outputs/3",
        "SHUNTER_METRICS_FILE": f"{home}/metrics/3/rank-6.jsonl",
        **{"HOME_DIR": f"{home}/inputs/base", "PATH": "/opt/env/bin:/mine", "VIRTUAL_ENV": "/opt/env"},
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "PYTHONHASHSEED" not in found or "PYTHONHASHSEED" in os.environ


def test_the_documents_variables_may_change_what_is_only_a_default(tmp_path: Path) -> None:
    document = {
        "environment": {"variables": {"OMP_NUM_THREADS": "7", "PYTHONUNBUFFERED": "", "CUDA_VISIBLE_DEVICES": "1"}}
    }

    found = plan_processes(crew(tmp_path, SCRIPT, document=document))[0].environment

    assert (found["OMP_NUM_THREADS"], found["PYTHONUNBUFFERED"]) == ("7", "")
    assert found["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("level", "distributed", "subsystems"), [("1", "INFO", None), ("2", "DETAIL", "ALL"), ("0", None, None)]
)
def test_one_switch_turns_debug_output_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, distributed: str | None, subsystems: str | None
) -> None:
    for name in ("TORCH_DISTRIBUTED_DEBUG", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "TORCH_FR_DUMP_TEMP_FILE"):
        monkeypatch.delenv(name, raising=False)
    document = {"environment": {"variables": {"SHUNTER_DEBUG": level}}}

    found = plan_processes(crew(tmp_path, SCRIPT, document=document))[0].environment

    dumps = found.get("TORCH_FR_DUMP_TEMP_FILE")
    assert (found.get("TORCH_DISTRIBUTED_DEBUG"), found.get("NCCL_DEBUG_SUBSYS")) == (distributed, subsystems)
    assert dumps == (f"{tmp_path}/outputs/3/flight-recorder/rank_" if distributed else None)
    assert dumps is None or os.path.isdir(os.path.dirname(dumps))


def test_what_debugging_sets_is_the_documents_to_change(tmp_path: Path) -> None:
    document = {"environment": {"variables": {"SHUNTER_DEBUG": "1", "NCCL_DEBUG": "WARN"}}}

    found = plan_processes(crew(tmp_path, SCRIPT, document=document))[0].environment

    assert (found["NCCL_DEBUG"], found["TORCH_CPP_LOG_LEVEL"]) == ("WARN", "INFO")


def test_what_the_agent_inherited_does_not_leak_into_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_DATABASE_URL", "secret")
    monkeypatch.setenv("WORLD_SIZE", "77")
    monkeypatch.setenv("ROLE_NAME", "x")
    monkeypatch.setenv("KEPT", "yes")

    found = plan_processes(crew(tmp_path, {**SCRIPT, "launcher": "plain"}))[0].environment

    assert "SHUNTER_DATABASE_URL" not in found
    assert found["KEPT"] == "yes"
    assert not TORCHRUN - {"MASTER_ADDR", "MASTER_PORT"} & set(found)
    assert (found["NODE_RANK"], found["SHUNTER_WORLD_SIZE"], found["SHUNTER_RANKS_PER_NODE"]) == ("1", "8", "4")


def test_the_trainer_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/image/libs")

    found = plan_processes(crew(tmp_path, {"kind": "training"}))[0].environment

    assert found["PYTHONPATH"] == f"{tmp_path}/trainer.zip:/image/libs"


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (
            {
                "kind": "deepspeed",
                "zero_stage": 3,
                "offload_optimizer": "cpu",
                "config": {"zero_optimization": {"x": 1}},
            },
            {"zero_optimization": {"x": 1, "stage": 3, "offload_optimizer": {"device": "cpu"}}},
        ),
        ({"kind": "deepspeed", "zero_stage": 1}, {"zero_optimization": {"stage": 1}}),
    ],
)
def test_a_deepspeed_strategy_becomes_a_file(
    tmp_path: Path, strategy: dict[str, Any], expected: dict[str, Any]
) -> None:
    workload = {**SCRIPT, "arguments": ["${deepspeed_config}"]}

    argv = plan_processes(crew(tmp_path, workload, document={"strategy": strategy}))[0].argv

    assert json.loads(Path(argv[-1]).read_text()) == expected


def test_a_programs_own_deepspeed_file_is_handed_over(tmp_path: Path) -> None:
    workload = {**SCRIPT, "arguments": ["${deepspeed_config}"]}
    document = {"strategy": {"kind": "own", "deepspeed_file": "conf/ds.json"}}

    assert plan_processes(crew(tmp_path, workload, document=document))[0].argv[-1] == "/src/conf/ds.json"


def test_an_accelerate_file_is_written_when_it_is_named(tmp_path: Path) -> None:
    workload = command("accelerate", "launch", "--config_file", "${accelerate_config}", "run.py", launcher="plain")

    argv = plan_processes(crew(tmp_path, workload))[0].argv

    found = json.loads(Path(argv[3]).read_text())
    assert (found["distributed_type"], found["num_machines"], found["machine_rank"]) == ("MULTI_CPU", 2, 1)
    assert (found["main_process_ip"], found["main_process_port"], found["num_processes"]) == ("127.0.0.1", 29511, 8)


def test_a_free_port_is_free_and_out_of_the_kernels_way() -> None:
    ports = {free_port("127.0.0.1") for _ in range(20)}

    assert all(20000 <= port < 32000 for port in ports)
    assert len(ports) > 1


def test_only_processes_of_the_folder_and_generation_are_marked(tmp_path: Path) -> None:
    environment = {**os.environ, processes.MARK: str(tmp_path), "SHUNTER_GENERATION": "3"}
    with subprocess.Popen(["sleep", "60"], env=environment) as child:
        found = processes.marked(str(tmp_path), 3)
        others = processes.marked(str(tmp_path), 4) + processes.marked(str(tmp_path / "x"))

        killed = processes.kill_marked(str(tmp_path))

        assert child.wait(5) == -9
    assert (found, others, killed) == ([child.pid], [], 1)


SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
FREE_TO_DIFFER = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
ITS_OWN = {"TORCHELASTIC_SIGNALS_TO_HANDLE"}
"""What newer versions of torchrun tell themselves by the environment, and their ranks by accident."""


@pytest.mark.slow
@pytest.mark.trainer
def test_the_variables_are_those_of_the_real_torchrun(
    tmp_path: Path, service: NodeService, agent: AgentProcess
) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    torchrun += ["--log-dir", str(tmp_path / "logs"), "--redirects", "1", str(tmp_path / "show.py")]
    outer = {name: value for name, value in os.environ.items() if name not in TORCHRUN}
    subprocess.run(torchrun, check=True, capture_output=True, timeout=60, env={**outer, "OMP_NUM_THREADS": "1"})
    theirs = [json.loads(path.read_text()) for path in sorted((tmp_path / "logs").rglob("stdout.log"))]

    service.run(assignment(command("python", str(tmp_path / "show.py")), ranks={"ranks_per_node": 2}))
    service.wait_for("drained")
    ours = [json.loads(service.log(rank, "stdout")) for rank in (0, 1)]

    for their, our in zip(theirs, ours, strict=True):
        made_by_torchrun = {name: value for name, value in their.items() if outer.get(name) != value}
        differing = {name for name, value in made_by_torchrun.items() if our.get(name) != value}
        assert differing - FREE_TO_DIFFER - ITS_OWN == {"TORCHELASTIC_USE_AGENT_STORE"}
        assert our["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        assert set(made_by_torchrun) - set(our) - ITS_OWN == set()


ALL_REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
line = f"total {total.item()} {dist.get_world_size()} {os.environ['LOCAL_RANK']}\\n"
os.write(1, line.encode())  # in one piece: under torchrun both ranks write to the same file
dist.barrier()
dist.destroy_process_group()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.trainer
@pytest.mark.parametrize("launcher", ["torch", "torchrun"])
def test_a_real_gang_meets_under_each_launcher(
    service: NodeService, agent: AgentProcess, tmp_path: Path, launcher: str
) -> None:
    (tmp_path / "reduce.py").write_text(ALL_REDUCE)
    workload = {"kind": "script", "entrypoint": str(tmp_path / "reduce.py"), "launcher": launcher}
    service.run(assignment(workload, ranks={"ranks_per_node": 2}))

    service.wait_for("drained", seconds=90)

    said = b"".join(service.log(rank, "stdout") for rank in range(2))
    assert sorted(said.splitlines()) == [b"total 3.0 2 0", b"total 3.0 2 1"]
    assert len(service.records("done")) == 1
    assert sorted(data["rank"] for data in service.data("rank_up")) == [0, 1]


@pytest.mark.slow
@pytest.mark.trainer
def test_a_worker_that_is_killed_under_torchrun_is_named(
    service: NodeService, agent: AgentProcess, tmp_path: Path
) -> None:
    (tmp_path / "die.py").write_text(
        "import os, signal, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(60)"
    )
    workload = {"kind": "script", "entrypoint": str(tmp_path / "die.py"), "launcher": "torchrun"}
    service.run(assignment(workload, ranks={"ranks_per_node": 2}))

    failed = service.wait_for("failed", seconds=90)

    assert (failed["rank"], failed["failure_class"], failed["reason"]) == (1, "node", "signal")
