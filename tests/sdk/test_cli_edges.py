"""What people do wrong at the command line, and what they read then."""

import json
from pathlib import Path
from typing import Any

import pytest
from shunter import Client
from shunter.cli.main import main
from support.api_process import ApiProcess
from support.command_line import shunter, written
from support.documents import tiny_lm

SKYPILOT = "name: a\nresources: {accelerators: 'H100:8'}\nfile_mounts: {/data: 's3://b/x'}\nrun: python train.py\n"


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("launch", "submit"),
        ("ls", "jobs"),
        ("status", "job"),
        ("stop", "cancel"),
        ("queue", "jobs"),
        ("down", "cancel"),
    ],
)
def test_the_word_of_another_tool_leads_to_ours(word: str, ours: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([word, "x"])

    assert code == 2
    assert (
        capsys.readouterr().err
        == f"error: No such command '{word}' - here it is `shunter {ours}`; all commands: shunter --help\n"
    )


@pytest.mark.parametrize("moment", ["99999999999d", "0001-01-01", "9999-12-31T23:59:59-23:00", "yesterday", ""])
@pytest.mark.parametrize("option", ["--since", "--before"])
def test_a_moment_that_does_not_exist_is_wrong_usage(
    option: str, moment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs", option, moment]) == 2
    assert f"{option}: {moment!r} is neither a span such as 2h nor a date" in capsys.readouterr().err


@pytest.mark.usefixtures("cli_environment")
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1h", ""])
def test_a_limit_is_a_number(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["update", "job_x", "--limit", f"max_duration_s={value}"]) == 2
    assert f"--limit: {value!r} is not a number" in capsys.readouterr().err


class TestSeveralJobs:
    """One that refuses keeps a wish from none of the others."""

    @pytest.fixture
    def ids(self, blocking_client: Client) -> list[str]:
        one, two = (blocking_client.submit(tiny_lm()).id for _ in range(2))
        return [one, "job_00000000000000000000000000", two]

    @pytest.mark.usefixtures("cli_environment")
    def test_cancel_reaches_those_behind_one_that_is_not_there(self, ids: list[str], blocking_client: Client) -> None:
        done = shunter("cancel", *ids)

        assert done.exit_code == 2
        assert done.stderr.count("there is no job") == 1
        assert [line.split()[0] for line in done.stdout.splitlines()] == [ids[0], ids[2]]
        assert all(blocking_client.get(job_id).cancel_requested_at for job_id in (ids[0], ids[2]))

    @pytest.mark.usefixtures("cli_environment")
    def test_delete_says_of_each_what_is_in_its_way(self, ids: list[str]) -> None:
        done = shunter("delete", "--yes", *ids, "--json")

        told = [json.loads(line) for line in done.stderr.splitlines()]
        assert (done.exit_code, json.loads(done.stdout)) == (2, {"deleted": []})
        assert [(one["about"], one["slug"]) for one in told] == [
            (ids[0], "job_not_ended"),
            (ids[1], "not_found"),
            (ids[2], "job_not_ended"),
        ]

    @pytest.mark.usefixtures("cli_environment")
    def test_an_error_says_which_job_it_is_about(self, ids: list[str]) -> None:
        done = shunter("delete", "--yes", *ids)

        assert all(line.count(job_id) == 1 for line, job_id in zip(done.stderr.splitlines(), ids, strict=True))

    def test_a_key_that_is_refused_is_told_once(self, cli_environment: ApiProcess, ids: list[str]) -> None:
        done = shunter("cancel", *ids, "--url", cli_environment.url, "--api-key", "shk_wrong")

        assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("cli_environment")
def test_a_list_that_is_cut_says_so(blocking_client: Client) -> None:
    for _ in range(2):
        blocking_client.submit(tiny_lm())

    cut, as_json = shunter("jobs", "-n", "1"), shunter("jobs", "-n", "1", "--json")

    assert len(cut.stdout.splitlines()) == 2
    assert "there are more: --limit" in cut.stderr
    assert (len(json.loads(as_json.stdout)), as_json.stderr) == (1, "")


class TestFilesThatAreNoDocuments:
    @pytest.mark.parametrize(
        ("name", "body", "words"),
        [
            ("a.json", "", "a.json is empty"),
            ("a.yaml", "\n \n", "a.yaml is empty"),
            ("task.yaml", SKYPILOT, "is a SkyPilot task, and no job document\nshunter init job.yaml --from"),
            ("config.yaml", "distributed_type: FSDP\n", "is an accelerate configuration, and no job document"),
            ("dstack.yaml", "type: task\ncommands: [a]\n", "is a dstack configuration, and no job document"),
            ("train.py", "import torch\n", "a program is started with: shunter run"),
            ("go.sh", "#!/bin/bash\necho\n", "a program is started with: shunter run"),
            ("j.sbatch", "#!/bin/bash\n#SBATCH -N 2\nsrun x\n", "shunter init job.yaml --from"),
        ],
    )
    def test_are_told_what_they_are_and_the_way_out(self, tmp_path: Path, name: str, body: str, words: str) -> None:
        (tmp_path / name).write_text(body)

        done = shunter("validate", tmp_path / name)

        assert done.exit_code == 2
        assert words in done.stderr

    def test_do_not_include_documents_with_faults(self, tmp_path: Path) -> None:
        done = shunter("validate", written(tmp_path, {"version": "1", "run": "x", "resources": {}}))

        assert "/run: unknown field" in done.stderr

    def test_are_named_in_what_validate_says(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text("a: [\n")

        done = shunter("validate", tmp_path / "a.yaml")

        assert f"{tmp_path / 'a.yaml'}: not YAML" in done.stderr


class TestInit:
    def test_says_what_is_left_to_mend_of_what_was_imported(self, tmp_path: Path) -> None:
        (tmp_path / "sky.yaml").write_text(SKYPILOT)

        done = shunter("init", tmp_path / "job.yaml", "--from", tmp_path / "sky.yaml")

        assert done.exit_code == 0
        assert "to mend before it can run: /inputs/data/from: not available yet" in done.stderr
        assert "submit it" not in done.stderr

    @pytest.mark.parametrize("name", ["job.txt", "job"])
    def test_writes_no_file_that_would_be_read_as_something_else(self, tmp_path: Path, name: str) -> None:
        done = shunter("init", tmp_path / name)

        assert done.exit_code == 2
        assert not (tmp_path / name).exists()

    def test_takes_an_empty_origin_for_none(self, tmp_path: Path) -> None:
        assert shunter("init", tmp_path / "job.yaml", "--from", "").exit_code == 2


@pytest.mark.parametrize(
    "part",
    [
        {"num_nodes": "two"},
        {"num_nodes": [2]},
        {"num_nodes": -1},
        {"resources": "H100"},
        {"envs": "A=1"},
        {"secrets": 7},
        {"file_mounts": "s3://x"},
        {"resources": {"accelerators": []}},
        {"resources": {"accelerators": {"H100": "x"}}},
        {"resources": {"accelerators": "H100:inf"}},
    ],
)
def test_a_part_of_a_skypilot_task_of_another_shape_is_named(tmp_path: Path, part: dict[str, Any]) -> None:
    task = written(tmp_path, {"run": "python train.py", **part}, "sky.json")

    done = shunter("init", tmp_path / "job.yaml", "--from", task)

    name = next(iter(part))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {name}")


def test_a_skypilot_task_on_cpus_keeps_its_nodes(tmp_path: Path) -> None:
    (tmp_path / "sky.yaml").write_text("num_nodes: 2\nrun: python train.py\n")

    done = shunter("init", tmp_path / "job.json", "--from", tmp_path / "sky.yaml", "--json")

    assert json.loads(done.stdout)["document"]["resources"] == {"nodes": 2, "cpu_processes": 1}
