"""Commands that take or make documents: submit, run, diff, schema, init."""

import json
from pathlib import Path
from typing import Any

import pytest
from shunter import Client
from shunter.document import load_document
from shunter_schemas.parse import parse_job
from support.api_process import ApiProcess
from support.command_line import shunter, written
from support.documents import changed, tiny_lm

SKYPILOT = """\
name: sft
num_nodes: 2
resources: {accelerators: "H100:8"}
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE train.py
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a program in it."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(f"print({str(tmp_path)!r})")
    monkeypatch.chdir(folder)
    return folder


def document(*arguments: str | Path) -> dict[str, Any]:
    """What `run --dry-run` would submit; it is a valid document."""
    done = shunter("run", "--dry-run", *arguments)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    parse_job(done.stdout.encode())
    return found


@pytest.mark.usefixtures("code")
class TestRun:
    def test_writes_the_document_of_a_python_program(self, code: Path) -> None:
        assert document("--gpus", "8", "train.py", "--lr", "3e-4", "--gpus", "mine") == {
            "version": "1",
            "name": "train",
            "source": {"kind": "folder", "path": str(code)},
            "workload": {
                "kind": "script",
                "entrypoint": "train.py",
                "arguments": ["--lr", "3e-4", "--gpus", "mine"],
            },
            "resources": {"gpus": 8},
        }

    @pytest.mark.parametrize(
        ("arguments", "place", "value"),
        [
            (["--cpu-processes", "2", "train.py"], "resources", {"cpu_processes": 2}),
            (["--nodes", "2", "--gpus-per-node", "8", "train.py"], "resources", {"nodes": 2, "gpus_per_node": 8}),
            (["-g", "2", "--gpu-model", "H100", "train.py"], "resources", {"gpus": 2, "gpu_models": ["H100"]}),
            (["-g", "2", "--name", "mine", "train.py"], "name", "mine"),
            (["-g", "2", "--set", "priority=high", "train.py"], "priority", "high"),
            (["torchrun", "--nproc-per-node", "4", "train.py"], "resources", {"nodes": 1, "gpus_per_node": 4}),
            (["-g", "4", "torchrun", "--nproc-per-node", "4", "train.py"], "resources", {"gpus": 4}),
        ],
    )
    def test_takes_options_before_the_program(self, arguments: list[str], place: str, value: Any) -> None:
        assert document(*arguments)[place] == value

    @pytest.mark.parametrize(
        ("arguments", "workload"),
        [
            (["-m", "pkg.train", "-x"], {"entrypoint": "pkg.train", "module": True, "arguments": ["-x"]}),
            (["bash", "run.sh"], {"command": ["bash", "run.sh"], "launcher": "plain"}),
            (["--launcher", "torch", "bash", "run.sh"], {"command": ["bash", "run.sh"], "launcher": "torch"}),
            (["--launcher", "accelerate", "train.py"], {"entrypoint": "train.py", "launcher": "accelerate"}),
            (["python", "train.py", "a"], {"entrypoint": "train.py", "arguments": ["a"]}),
        ],
    )
    def test_knows_how_each_kind_of_program_starts(self, arguments: list[str], workload: dict[str, Any]) -> None:
        assert document("--gpus", "2", *arguments)["workload"] == {"kind": "script", **workload}

    def test_names_a_program_as_its_source_folder_does(self, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(code.parent)

        found = document("--gpus", "1", "--source", "code", "code/train.py")

        assert found["workload"]["entrypoint"] == "train.py"
        assert found["source"]["path"] == str(code)

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (["train.py"], "it is not said how many ranks there are - give --gpus N"),
            (["python", "train.py"], "it is not said how many ranks there are"),
            (["torchrun", "--nproc-per-node", "gpu", "train.py"], "it is not said how many ranks there are"),
            (["--gpus", "1", "nowhere.py"], "nowhere.py: there is no such file"),
            (["--gpus", "1", "../outside.py"], "lies outside of"),
            (["--gpus", "0", "train.py"], "--gpus"),
            (["--gpus", "1"], "Missing argument"),
        ],
    )
    def test_says_what_is_missing(self, code: Path, arguments: list[str], complaint: str) -> None:
        (code.parent / "outside.py").touch()

        done = shunter("run", *arguments)

        assert done.exit_code == 2
        assert complaint in done.stderr

    def test_does_not_send_a_home_directory(self, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(code))

        done = shunter("run", "--gpus", "1", "train.py")

        assert done.exit_code == 2
        assert "would be sent whole" in done.stderr

    def test_sends_the_folder_and_submits(self, cli_environment: ApiProcess, code: Path) -> None:
        done = shunter("run", "--cpu-processes", "1", "--source", code, code / "train.py")

        job = json.loads(shunter("job", done.stdout.strip(), "--json").stdout)
        assert f"sending {code}: 1 files" in done.stderr
        assert job["spec"]["source"]["kind"] == "bundle"


@pytest.mark.usefixtures("cli_environment")
class TestSubmit:
    def test_takes_the_document_of_another_job(self, tmp_path: Path) -> None:
        first = shunter("submit", written(tmp_path)).stdout.strip()

        second = shunter("submit", "--like", first, "--set", "workload.optimizer.lr=0.01").stdout.strip()

        shown = shunter("diff", first, second)
        assert (shown.exit_code, shown.stdout) == (1, "~ /workload/optimizer/lr: 0.002 -> 0.01\n")

    def test_takes_a_file_or_another_job_and_not_both(self, tmp_path: Path) -> None:
        assert shunter("submit").exit_code == 2
        assert shunter("submit", written(tmp_path), "--like", "job_x").exit_code == 2

    def test_prints_what_it_would_submit(self, tmp_path: Path, blocking_client: Client) -> None:
        before = blocking_client.counts().total

        done = shunter("submit", written(tmp_path), "--set", "name=x", "--dry-run")

        assert json.loads(done.stdout) == changed(tiny_lm(), {"name": "x"})
        assert blocking_client.counts().total == before

    def test_takes_yaml_and_json_with_comments(self, tmp_path: Path) -> None:
        (tmp_path / "job.jsonc").write_text(f"// mine\n{json.dumps(tiny_lm())[:-1]}, /* more */ }}")
        shunter("init", tmp_path / "job.yaml", "--kind", "training")

        for name in ("job.jsonc", "job.yaml"):
            assert shunter("submit", tmp_path / name).stdout.startswith("job_")


class TestDiff:
    def test_a_default_that_is_written_out_is_no_difference(self, tmp_path: Path) -> None:
        plain = written(tmp_path)
        explicit = written(tmp_path, changed(tiny_lm(), {"priority": "normal", "labels.example": "true"}), "b.json")

        done = shunter("diff", plain, explicit)

        assert (done.exit_code, done.stdout) == (0, "")

    def test_shows_what_was_added_removed_and_changed(self, tmp_path: Path) -> None:
        old = written(tmp_path, {"a": 1, "b": [1, 2], "c": {"d": True}}, "old.json")
        new = written(tmp_path, {"b": [1, 3], "c": {"d": 1}, "e": "x"}, "new.json")

        lines = shunter("diff", old, new).stdout.splitlines()
        data = json.loads(shunter("diff", old, new, "--json").stdout)

        assert lines == ["- /a: 1", "~ /b/1: 2 -> 3", "~ /c/d: true -> 1", '+ /e: "x"']
        assert data[0] == {"pointer": "/a", "old": 1}


def test_the_schema_is_printed_as_it_is_served(cli_environment: ApiProcess, blocking_client: Client) -> None:
    printed = json.loads(shunter("schema").stdout)

    assert printed == json.loads(shunter("schema", "--json").stdout)
    assert printed["title"] == "Shunter job document, version 1"
    assert "$schema" in printed["properties"]


class TestInit:
    @pytest.mark.parametrize("name", ["job.yaml", "job.json"])
    @pytest.mark.parametrize("kind", ["script", "training"])
    def test_writes_a_document_that_is_valid_as_it_stands(self, tmp_path: Path, name: str, kind: str) -> None:
        (tmp_path / "train.py").touch()

        done = shunter("init", tmp_path / name, "--kind", kind)

        text = (tmp_path / name).read_text()
        assert (done.exit_code, done.stdout) == (0, f"{tmp_path / name}\n")
        assert "How many ranks, on what." in text
        assert "$schema" in text
        assert shunter("validate", tmp_path / name).exit_code == 0

    def test_names_the_schema_of_the_service_that_there_is(self, cli_environment: ApiProcess, tmp_path: Path) -> None:
        shunter("init", tmp_path / "job.yaml")

        assert (
            (tmp_path / "job.yaml")
            .read_text()
            .startswith(f"# yaml-language-server: $schema={cli_environment.url}/v1/schemas/job.json\n")
        )

    def test_writes_over_nothing_unless_told_so(self, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text("mine")

        refused = shunter("init", tmp_path / "job.yaml")

        assert refused.exit_code == 2
        assert "--force" in refused.stderr
        assert (tmp_path / "job.yaml").read_text() == "mine"
        assert shunter("init", tmp_path / "job.yaml", "--force").exit_code == 0

    def test_takes_over_a_task_and_tells_what_became_of_each_part(self, tmp_path: Path) -> None:
        (tmp_path / "sky.yaml").write_text(SKYPILOT)

        done = shunter("init", tmp_path / "job.yaml", "--from", tmp_path / "sky.yaml")

        made = load_document(tmp_path / "job.yaml")
        assert made["resources"] == {"nodes": 2, "gpus_per_node": 8, "gpu_models": ["H100"]}
        assert made["workload"]["entrypoint"] == "train.py"
        assert "mapped: resources.accelerators" in done.stderr

    def test_takes_over_a_command_line(self, tmp_path: Path) -> None:
        command = "torchrun --nproc-per-node 2 train.py --lr 3e-4"

        done = shunter("init", tmp_path / "job.yaml", "--from", command, "--json")

        told = json.loads(done.stdout)
        assert told["document"] == load_document(tmp_path / "job.yaml")
        assert {"kind": "mapped", "part": "train.py", "why": "workload"} in told["notes"]

    def test_lays_a_shell_program_beside_the_document(self, tmp_path: Path) -> None:
        (tmp_path / "sky.yaml").write_text(SKYPILOT.replace("torchrun", "for n in 1 2; do echo $n; done; torchrun"))

        done = shunter("init", tmp_path / "job.yaml", "--from", tmp_path / "sky.yaml")

        assert done.stdout.splitlines() == [str(tmp_path / "job.yaml"), str(tmp_path / "run.sh")]
        assert "export SKYPILOT_NODE_RANK" in (tmp_path / "run.sh").read_text()
        assert load_document(tmp_path / "job.yaml")["workload"]["command"] == ["bash", "run.sh"]

    def test_says_what_it_can_take_over(self, tmp_path: Path) -> None:
        done = shunter("init", tmp_path / "job.yaml", "--from", "ls -l")

        assert done.exit_code == 2
        assert "torchrun" in done.stderr
        assert not (tmp_path / "job.yaml").exists()
