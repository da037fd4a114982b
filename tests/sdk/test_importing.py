"""Other tools' files and command lines: what they become, and that every part is accounted for."""

import json
from pathlib import Path
from typing import Any

import pytest
from shunter.errors import ShunterError
from shunter.importing import Imported, Kind, import_from
from shunter.importing.sbatch import seconds_of
from shunter.importing.shell import take_apart
from shunter_schemas.faults import DocumentError, Fault
from shunter_schemas.parse import parse_job


def parts(found: Imported, kind: Kind) -> str:
    """The notes of a kind as one text."""
    return "\n".join(f"{note.part}: {note.why}" for note in found.notes if note.kind is kind)


def imported(folder: Path, name: str, text: str) -> Imported:
    """A file's document; it is a document of version 1, though a release may not run all of it yet."""
    (folder / name).write_text(text)
    found = import_from(str(folder / name))
    assert [fault for fault in faults_of(found.document) if "not available yet" not in fault.detail] == []
    return found


def faults_of(document: dict[str, Any]) -> list[Fault]:
    try:
        parse_job(json.dumps(document).encode())
    except DocumentError as error:
        return error.faults
    return []


class TestCommandLines:
    @pytest.mark.parametrize(
        ("command", "resources", "workload"),
        [
            (
                "torchrun --nnodes 2 --nproc-per-node=8 --rdzv_backend c10d --rdzv-endpoint host:29500 train.py --lr 1",
                {"nodes": 2, "gpus_per_node": 8},
                {"entrypoint": "train.py", "arguments": ["--lr", "1"]},
            ),
            (
                "python3 -m torch.distributed.run --standalone --nproc_per_node 4 -m pkg.train -- -x",
                {"nodes": 1, "gpus_per_node": 4},
                {"entrypoint": "pkg.train", "module": True, "arguments": ["--", "-x"]},
            ),
            (
                "torchrun --nproc-per-node 2 --no-python bash run.sh",
                {"nodes": 1, "gpus_per_node": 2},
                {"command": ["bash", "run.sh"], "launcher": "torch"},
            ),
            (
                "accelerate launch --num_machines 2 --num_processes 16 run.py",
                {"nodes": 2, "gpus_per_node": 8},
                {"entrypoint": "run.py"},
            ),
            ("accelerate launch --cpu --num_processes 2 run.py", {"cpu_processes": 2}, {"entrypoint": "run.py"}),
            (
                "deepspeed --num_gpus 4 train.py --deepspeed ds.json",
                {"nodes": 1, "gpus_per_node": 4},
                {"entrypoint": "train.py", "arguments": ["--deepspeed", "${deepspeed_config}"]},
            ),
            ("python -u train.py a", {"gpus": 1}, {"entrypoint": "train.py", "arguments": ["a"]}),
            ("torchrun --nproc_per_node=cpu train.py", {"cpu_processes": 1}, {"entrypoint": "train.py"}),
        ],
    )
    def test_become_ranks_and_a_program(self, command: str, resources: Any, workload: Any) -> None:
        found = import_from(command)

        assert found.document["resources"] == resources
        assert found.document["workload"] == {"kind": "script", **workload}
        parse_job(json.dumps(found.document).encode())

    def test_restarts_are_taken_over_and_rendezvous_is_not_needed(self) -> None:
        found = import_from("torchrun --nproc-per-node 2 --max-restarts 3 --master-port 29500 --tee 3 train.py")

        assert found.document["recovery"] == {"user_restarts": 3}
        assert "--master-port: the ranks of a job find each other" in parts(found, Kind.DROPPED)
        assert "--tee: the agent does this" in parts(found, Kind.DROPPED)

    def test_a_number_that_only_the_machine_knows_is_assumed_and_said(self) -> None:
        found = import_from("torchrun --nproc-per-node gpu train.py")

        assert found.document["resources"] == {"nodes": 1, "gpus_per_node": 8}
        assert "1 nodes with 8 ranks each" in parts(found, Kind.ASSUMED)

    def test_an_elastic_range_becomes_its_end(self) -> None:
        found = import_from("torchrun --nnodes 1:4 --nproc-per-node 8 train.py")

        assert found.document["resources"]["nodes"] == 4
        assert "--nnodes 1:4" in parts(found, Kind.DROPPED)

    def test_settings_of_accelerate_reach_the_ranks_as_it_would_pass_them_on(self) -> None:
        found = import_from(
            "accelerate launch --use_fsdp --fsdp_version 2 --fsdp_offload_params true --num_processes 8 "
            "--mixed_precision bf16 --dynamo_backend inductor --main_process_port 0 run.py"
        )

        assert found.document["environment"]["variables"] == {
            "ACCELERATE_USE_FSDP": "true",
            "FSDP_VERSION": "2",
            "FSDP_OFFLOAD_PARAMS": "true",
            "ACCELERATE_MIXED_PRECISION": "bf16",
            "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
        }

    @pytest.mark.parametrize(
        ("command", "complaint"),
        [
            ("torchrun", "names no program"),
            ("torchrun --nproc-per-node", "has no value"),
            ("accelerate config", "`accelerate launch` starts a training"),
            ("accelerate launch --use_megatron_lm x.py", "Megatron"),
            ("torchrun --nproc-per-node 2 train.sh", "is no Python file"),
            ("ls -l", "neither a file nor a command line"),
            ("'unclosed", "neither a file nor a command line"),
            ("", "neither a file nor a command line"),
        ],
    )
    def test_that_start_no_training_are_refused(self, command: str, complaint: str) -> None:
        with pytest.raises(ShunterError, match=complaint):
            import_from(command)


ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: {kind}
downcast_bf16: 'no'
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 16
rdzv_backend: static
same_network: true
use_cpu: false
"""


class TestAccelerateConfigurations:
    def test_fsdp_is_passed_on_by_variables(self, tmp_path: Path) -> None:
        text = ACCELERATE.format(kind="FSDP") + (
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
            "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
        )

        found = imported(tmp_path, "accelerate.yaml", text)

        variables = found.document["environment"]["variables"]
        assert found.document["resources"] == {"nodes": 2, "gpus_per_node": 8}
        assert variables["ACCELERATE_USE_FSDP"] == "true"
        assert variables["FSDP_RESHARD_AFTER_FORWARD"] == "true"
        assert variables["FSDP_TRANSFORMER_CLS_TO_WRAP"] == "LlamaDecoderLayer"
        assert "the file names none" in parts(found, Kind.ASSUMED)

    def test_a_deepspeed_file_is_handed_over(self, tmp_path: Path) -> None:
        text = ACCELERATE.format(kind="DEEPSPEED") + "deepspeed_config:\n  deepspeed_config_file: ds.json\n"

        found = imported(tmp_path, "accelerate.yaml", text)

        assert found.document["strategy"] == {"kind": "own", "deepspeed_file": "ds.json"}
        assert found.document["environment"]["variables"]["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "${deepspeed_config}"

    def test_what_is_not_known_is_reported_and_never_swallowed(self, tmp_path: Path) -> None:
        found = imported(
            tmp_path, "a.yaml", ACCELERATE.format(kind="MULTI_GPU") + "frobnicate: 3\nfp8_config: {x: 1}\n"
        )

        assert "frobnicate: it is not known here" in parts(found, Kind.REFUSED)
        assert "fp8_x: it has no counterpart" in parts(found, Kind.REFUSED)

    @pytest.mark.parametrize("kind", ["MEGATRON_LM", "XLA"])
    def test_what_cannot_be_had_is_refused(self, tmp_path: Path, kind: str) -> None:
        with pytest.raises(ShunterError, match=f"distributed_type {kind}"):
            imported(tmp_path, "a.yaml", ACCELERATE.format(kind=kind))


SKYPILOT = """\
name: min GPT!
num_nodes: 2
workdir: .
resources:
  accelerators: A100:8
  use_spot: true
  cpus: 64+
  max_hourly_cost: 10
  ports: 8081
  infra: aws
  any_of: [{infra: aws}]
  labels: {team: nlp}
envs: {MODEL: gpt2, TOKEN: null}
secrets: {HF_TOKEN: "hunter2"}
file_mounts:
  /data: s3://bucket/x
  /ckpt: {source: s3://b, mode: MOUNT}
setup: pip install -r requirements.txt
service: {replicas: 2}
run: |
  export LOGLEVEL=INFO
  MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
  echo "Starting, head node: $MASTER_ADDR"
  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE \\
    --master_addr=$MASTER_ADDR --node_rank=${SKYPILOT_NODE_RANK} main.py --model $MODEL
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "t.sky.yaml",
            "num_nodes: 2\nresources: {accelerators: 'A100:8'}\nrun: torchrun --nproc-per-node 8 train.py\n",
        ),
        ("t.sbatch", "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun torchrun --nproc-per-node 8 train.py\n"),
    ],
)
def test_nodes_that_the_command_does_not_use_are_not_passed_over(tmp_path: Path, name: str, text: str) -> None:
    found = imported(tmp_path, name, text)

    assert found.document["resources"]["nodes"] == 1
    assert "2 nodes: the command starts a gang on 1" in parts(found, Kind.REFUSED)


class TestSkyPilotTasks:
    def test_are_taken_over_part_by_part(self, tmp_path: Path) -> None:
        found = imported(tmp_path, "sky.yaml", SKYPILOT)

        document = found.document
        assert document["name"] == "min GPT"
        assert document["resources"] == {
            "nodes": 2,
            "gpus_per_node": 8,
            "gpu_models": ["A100"],
            "capacity": "spot",
            "min_cpus_per_gpu": 8.0,
        }
        assert document["workload"] == {
            "kind": "script",
            "entrypoint": "main.py",
            "arguments": ["--model", "gpt2"],
        }
        assert document["limits"] == {"max_usd_per_hour": 20.0}
        assert document["labels"] == {"team": "nlp"}
        assert document["environment"]["variables"] == {"MODEL": "gpt2", "LOGLEVEL": "INFO"}
        assert document["environment"]["setup"] == ["pip install -r requirements.txt"]
        assert document["inputs"] == {"data": {"from": "s3://bucket/x"}}

    def test_account_for_every_part(self, tmp_path: Path) -> None:
        found = imported(tmp_path, "sky.yaml", SKYPILOT)

        refused = parts(found, Kind.REFUSED)
        for part in ("resources.infra aws", "resources.any_of", "envs TOKEN", "file_mounts /ckpt", "service"):
            assert part in refused
        assert "resources.ports: no port is opened" in parts(found, Kind.DROPPED)

    def test_never_repeat_a_secret(self, tmp_path: Path) -> None:
        found = imported(tmp_path, "sky.yaml", SKYPILOT)

        assert found.document["environment"]["secrets"] == ["HF_TOKEN"]
        assert "hunter2" not in json.dumps(found.document) + str(found.notes)

    def test_that_are_shell_programs_go_along_as_such(self, tmp_path: Path) -> None:
        found = imported(tmp_path, "sky.yaml", "resources: {accelerators: H100}\nrun: |\n  cd sub\n  python train.py\n")

        assert found.document["workload"] == {"kind": "script", "command": ["bash", "run.sh"], "launcher": "plain"}
        assert found.files["run.sh"].endswith("cd sub\npython train.py\n")
        assert 'SKYPILOT_NUM_NODES="$SHUNTER_NUM_NODES"' in found.files["run.sh"]

    def test_without_gpus_run_on_cpus(self, tmp_path: Path) -> None:
        found = imported(tmp_path, "sky.yaml", "run: torchrun --nproc-per-node 2 train.py\n")

        assert found.document["resources"] == {"cpu_processes": 2}

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("name: a\nsetup: x\nrun: ''\n", "has no `run`"),
            ("run: a\n---\nrun: b\n", "another document"),
            ("[1]\n", "holds no settings"),
            ("kind: Deployment\nspec: {}\n", "none of what can be imported"),
            ("a: [\n", "not YAML"),
        ],
    )
    def test_that_are_none_are_refused(self, tmp_path: Path, text: str, complaint: str) -> None:
        with pytest.raises(ShunterError, match=complaint):
            imported(tmp_path, "sky.yaml", text)


SBATCH = """\
#!/bin/bash
#SBATCH --job-name=multinode-example
#SBATCH --nodes=4 --ntasks=4
#SBATCH --gpus-per-task=a100:2
#SBATCH -c 8
#SBATCH -t 1-02:00:00 # a day and more
#SBATCH --mem=512G
#SBATCH --array=1-3
#SBATCH -p gpu --frobnicate
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
module load cuda/12
cd $SLURM_SUBMIT_DIR
export LOGLEVEL=INFO
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 2 --rdzv_id $RANDOM --rdzv_endpoint $head_node_ip:1 train.py 50
"""


class TestBatchScripts:
    def test_header_and_launch_are_taken_over(self, tmp_path: Path) -> None:
        found = imported(tmp_path, "job.sbatch", SBATCH)

        assert found.document["name"] == "multinode-example"
        assert found.document["resources"] == {
            "gpu_models": ["A100"],
            "nodes": 4,
            "gpus_per_node": 2,
            "min_cpus_per_gpu": 4.0,
            "min_memory_gib_per_gpu": 256.0,
        }
        assert found.document["limits"] == {"max_duration_s": 93600}
        assert found.document["workload"] == {"kind": "script", "entrypoint": "train.py", "arguments": ["50"]}
        assert found.document["environment"]["variables"] == {"LOGLEVEL": "INFO"}

    def test_what_is_about_the_old_cluster_is_said(self, tmp_path: Path) -> None:
        found = imported(tmp_path, "job.sbatch", SBATCH)

        refused = parts(found, Kind.REFUSED)
        assert "--array=1-3: submit one job for each task" in refused
        assert "module load cuda/12" in refused
        assert "--frobnicate: it is not known here" in refused
        assert "--partition=gpu" in parts(found, Kind.DROPPED)

    def test_a_body_that_is_more_than_a_launch_goes_along(self, tmp_path: Path) -> None:
        text = "#!/bin/bash\n#SBATCH --gres=gpu:v100:4\nfor lr in 1 2; do\n  srun python train.py $lr\ndone\n"

        found = imported(tmp_path, "job.sh", text)

        assert found.document["workload"]["command"] == ["bash", "run.sh"]
        assert found.document["resources"] == {"gpu_models": ["V100"], "nodes": 1, "gpus_per_node": 4}
        assert "srun() {" in found.files["run.sh"]

    @pytest.mark.parametrize(
        ("options", "resources"),
        [
            ("--nodes=2 --gpus=16", {"nodes": 2, "gpus_per_node": 8}),
            ("-N 2 --gpus-per-node=h100:8", {"nodes": 2, "gpus_per_node": 8, "gpu_models": ["H100"]}),
            ("-N2 --gres=gpu:4,nvme:1", {"nodes": 2, "gpus_per_node": 4}),
            ("-N 2-4 --gres=gpu", {"nodes": 4, "gpus_per_node": 1}),
            ("--ntasks-per-node=4 --gpus-per-task=1", {"nodes": 1, "gpus_per_node": 4}),
        ],
    )
    def test_gpus_are_counted_as_slurm_counts_them(self, tmp_path: Path, options: str, resources: Any) -> None:
        found = imported(tmp_path, "job.sh", f"#!/bin/bash\n#SBATCH {options}\nsrun python train.py\n")

        assert found.document["resources"] == resources

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("30", 1800), ("30:15", 1815), ("1:00:00", 3600), ("2-12", 216000), ("1-00:30", 88200), ("x", None),
         ("1:2:3:4", None), ("UNLIMITED", None)],
    )  # fmt: skip
    def test_times_are_read_as_slurm_reads_them(self, text: str, seconds: int | None) -> None:
        assert seconds_of(text) == seconds


class TestShellScripts:
    @pytest.mark.parametrize(
        "text",
        [
            "python train.py && echo done",
            "python train.py > log.txt",
            "python a.py\npython b.py",
            "rm -rf build\npython train.py",
            "python train.py $UNKNOWN",
            "python train.py $(nproc)",
            "python train.py *.json",
            "if true; then python train.py; fi",
            "python 'unclosed",
            "echo nothing else",
            "",
        ],
    )
    def test_that_do_more_than_start_one_training_are_left_whole(self, text: str) -> None:
        assert take_apart(text, {}) is None

    def test_constants_are_filled_in(self) -> None:
        script = take_apart('set -e\nLR=3e-4\nexport A="b c"\npython train.py --lr ${LR}', {})
        assert script is not None
        assert (script.launch, script.exports) == (["python", "train.py", "--lr", "3e-4"], {"A": "b c"})

    def test_a_script_file_is_imported_too(self, tmp_path: Path) -> None:
        found = imported(tmp_path, "train.sh", "#!/bin/sh\nset -e\ntorchrun --nproc-per-node 2 train.py\n")

        assert found.document["resources"] == {"nodes": 1, "gpus_per_node": 2}
