"""The command line against a real API process: what it prints, and what it exits with."""

import json
import shutil
from pathlib import Path

import pytest
from shunter.cli.main import main
from shunter_schemas.states import Reason
from support.api_process import ApiProcess
from support.command_line import shunter, written
from support.documents import REPOSITORY, changed, script, tiny_lm


@pytest.fixture
def job_id(cli_environment: ApiProcess, tmp_path: Path) -> str:
    return shunter("submit", written(tmp_path)).stdout.strip()


@pytest.mark.usefixtures("cli_environment")
class TestSubmit:
    def test_prints_the_id_alone_and_the_next_command_beside_it(self, tmp_path: Path) -> None:
        done = shunter("submit", written(tmp_path), "--set", "name=from-the-shell")

        job_id = done.stdout.strip()
        assert (done.exit_code, done.stdout) == (0, f"{job_id}\n")
        assert f"shunter watch {job_id}" in done.stderr
        assert "from-the-shell" in shunter("job", job_id).stdout

    def test_takes_a_document_from_standard_input(self) -> None:
        done = shunter("submit", "-", stdin=json.dumps(tiny_lm()))

        assert done.exit_code == 0
        assert done.stdout.startswith("job_")

    def test_tells_how_much_is_sent(self, tmp_path: Path) -> None:
        code = tmp_path / "code"
        code.mkdir()
        (code / "train.py").write_text(f"print({str(tmp_path)!r})")
        document = written(tmp_path, changed(script(), {"inputs": {}, "workload.arguments": []}))

        first = shunter("submit", document, "--source", code)
        second = shunter("submit", document, "--source", code)

        assert f"sending {code}: 1 files," in first.stderr
        assert f"the service has {code}: 1 files," in second.stderr

    def test_names_the_field_and_the_way_out_in_one_line(self, tmp_path: Path) -> None:
        done = shunter("submit", written(tmp_path, changed(tiny_lm(), {"nmae": "x"})))

        assert done.exit_code == 2
        assert done.stderr == "error: /nmae: unknown field; did you mean `name`?\n"

    def test_names_one_fault_and_how_to_see_the_others(self, tmp_path: Path) -> None:
        done = shunter("submit", written(tmp_path, changed(tiny_lm(), {"nmae": "x", "priority": "urgent"})))

        (line,) = done.stderr.splitlines()
        assert line.startswith("error: /")
        assert line.endswith("(and 1 more: -v shows them)")

    def test_tells_all_faults_and_the_request_with_v(self, tmp_path: Path) -> None:
        wrong = written(tmp_path, changed(tiny_lm(), {"nmae": "x", "priority": "urgent"}))

        done = shunter("submit", wrong, "-v")

        assert "/nmae: " in done.stderr
        assert "/priority: " in done.stderr
        assert "answer: 422 invalid_document" in done.stderr
        assert "request: req_" in done.stderr
        assert "Traceback" not in done.stderr

    def test_tells_errors_as_json_too(self, tmp_path: Path) -> None:
        done = shunter("submit", written(tmp_path, changed(tiny_lm(), {"priority": "urgent"})), "--json")

        told = json.loads(done.stderr)
        assert (told["error"], told["status"], told["slug"]) == ("DocumentRefused", 422, "invalid_document")
        assert [fault["pointer"] for fault in told["errors"]] == ["/priority"]

    def test_refuses_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        done = shunter("submit", tmp_path / "nowhere.json")

        assert done.exit_code == 2
        assert "nowhere.json: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("reason", "exit_code", "state"),
    [(Reason.DONE, 0, "succeeded"), (Reason.USER_ERROR, 1, "failed"), (Reason.CANCELLED_BY_USER, 3, "cancelled")],
)
def test_watch_exits_by_how_the_job_ended(
    cli_environment: ApiProcess, job_id: str, reason: Reason, exit_code: int, state: str
) -> None:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.report(40, 300, loss=2.5, val_loss=2.625)
    part.end(reason, "Traceback: boom")

    done = shunter("watch", job_id)

    assert done.exit_code == exit_code
    assert state in done.stdout
    assert "step 40/300  loss 2.500  val_loss 2.625" in done.stdout
    assert "Traceback: boom" in done.stderr


def test_watch_with_json_prints_the_ended_job_alone(cli_environment: ApiProcess, job_id: str) -> None:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.end(Reason.DONE)

    done = shunter("watch", job_id, "--json")

    assert json.loads(done.stdout)["state"] == "succeeded"
    assert job_id in done.stderr


def test_jobs_are_a_table_and_json(job_id: str) -> None:
    table = shunter("jobs", "--limit", "1")
    listed = json.loads(shunter("jobs", "--limit", "1", "--json").stdout)

    headings, row = table.stdout.splitlines()
    assert headings.split() == ["ID", "NAME", "STATE", "STEP", "CREATED", "REASON"]
    assert row.split()[:3] == [job_id, "tiny-lm-ddp", "queued"]
    assert [job["id"] for job in listed] == [job_id]


@pytest.mark.usefixtures("cli_environment")
def test_an_empty_list_says_so_and_prints_no_table() -> None:
    done = shunter("jobs", "--name", "nobody-has-this-name")

    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no jobs\n")


@pytest.mark.usefixtures("cli_environment")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["jobs", "--since", "yesterday"], "'yesterday' is neither a span such as 2h nor a date"),
        (["jobs", "--state", "sleeping"], "state"),
        (["job", "job_nothing"], "there is no job job_nothing"),
        (["logs", "job_nothing", "-f"], "there is no job job_nothing"),
        (["jobs", "--nonsense"], "No such option: --nonsense"),
        (["--json", "jobs"], "options stand behind the command"),
        (["job"], "Missing argument"),
        (["frobnicate"], "No such command"),
    ],
)
def test_what_is_wrong_with_the_command_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code = main(arguments)

    said = capsys.readouterr().err
    assert exit_code == 2
    assert complaint in said
    assert len(said.splitlines()) == 1


def test_a_job_is_described_with_its_history(cli_environment: ApiProcess, job_id: str) -> None:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.end(Reason.OUT_OF_MEMORY, "rank 1: out of memory\n  at layer 3")

    shown = shunter("job", job_id).stdout

    assert shown.splitlines()[0] == job_id
    assert "failed  out_of_memory" in shown
    assert "rank 1: out of memory" in shown
    assert "at layer 3" in shown
    states = [line.split()[2] for line in shown.splitlines() if line.startswith("  20")]
    assert states == ["queued", "provisioning", "starting", "running", "stopping", "failed"]


def test_logs_show_the_rank_unless_one_is_chosen(cli_environment: ApiProcess, job_id: str) -> None:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.print("from zero\n")
    part.print("from one\n", rank=1)
    part.end(Reason.DONE)

    assert shunter("logs", job_id).stdout == "[0] from zero\n[1] from one\n"
    assert shunter("logs", job_id, "--rank", "1").stdout == "from one\n"
    assert shunter("logs", job_id, "--tail", "1").stdout == "[1] from one\n"
    assert shunter("logs", job_id, "--tail", "1", "-f").stdout == "[1] from one\n"
    assert json.loads(shunter("logs", job_id, "--rank", "1", "--json").stdout)["text"] == "from one"


def test_logs_are_searched(cli_environment: ApiProcess, job_id: str) -> None:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.print("fine\nan Error here\n")

    assert shunter("logs", job_id, "--search", "error").stdout == "[0] an Error here\n"
    assert shunter("logs", job_id, "--search", "error", "--case").stdout == ""
    part.end(Reason.DONE)
    assert shunter("logs", job_id, "--search", "error", "-f").stdout == "[0] an Error here\n"


def test_events_are_numbered_lines(cli_environment: ApiProcess, job_id: str) -> None:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.end(Reason.DONE)

    plain = shunter("events", job_id).stdout
    followed = shunter("events", job_id, "-f", "--json").stdout

    assert [line.split()[0] for line in plain.splitlines()] == [str(n + 1) for n in range(len(plain.splitlines()))]
    assert [json.loads(line)["seq"] for line in followed.splitlines()] == list(range(1, len(plain.splitlines()) + 1))


def test_artifacts_are_listed_and_fetched(cli_environment: ApiProcess, job_id: str, tmp_path: Path) -> None:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.leave("model.safetensors", b"w" * 2048)

    listed = shunter("artifacts", job_id)
    fetched = shunter("artifacts", job_id, "--download", tmp_path / "out")

    row = listed.stdout.splitlines()[1].split()
    assert (row[:2], row[-1]) == (["2.0", "KiB"], "model.safetensors")
    assert fetched.stdout == f"1 files, 2.0 KiB, in {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == b"w" * 2048


def test_a_folder_that_cannot_be_written_is_one_line(cli_environment: ApiProcess, job_id: str, tmp_path: Path) -> None:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.leave("model.safetensors", b"w")
    (tmp_path / "file").touch()

    done = shunter("artifacts", job_id, "--download", tmp_path / "file" / "out")

    assert done.exit_code == 1
    assert done.stderr == f"error: {tmp_path / 'file' / 'out'}: Not a directory\n"


def test_cancel_says_where_the_job_is(job_id: str) -> None:
    done = shunter("cancel", job_id)

    assert done.exit_code == 0
    assert done.stdout.startswith(f"{job_id}  ")


def test_a_data_directory_can_be_named(api: ApiProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SHUNTER_API_KEY", "shk_other")

    done = shunter("jobs", "--data-dir", api.data_dir)

    assert done.exit_code == 0


def test_what_is_wrong_with_the_command_is_told_as_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = main(["cancel", "--json"])

    told = json.loads(capsys.readouterr().err)
    assert (exit_code, told["error"]) == (2, "UsageError")
    assert told["hint"] == "see shunter cancel --help"


@pytest.mark.usefixtures("cli_environment")
def test_providers_are_a_table() -> None:
    assert "local" in shunter("providers").stdout


class TestValidate:
    def test_says_that_the_examples_are_valid(self) -> None:
        for example in ("tiny-lm-ddp.json", "script-ddp/job.json"):
            assert shunter("validate", REPOSITORY / "examples" / example).exit_code == 0

    def test_says_the_same_words_as_the_service(self, cli_environment: ApiProcess, tmp_path: Path) -> None:
        wrong = written(tmp_path, changed(tiny_lm(), {"workload.batch.global_size": 15, "resources.gpus": 2}))

        offline = json.loads(shunter("validate", wrong, "--json").stdout)
        online = json.loads(shunter("submit", wrong, "--json").stderr)

        assert offline["valid"] is False
        assert offline["errors"] == online["errors"]

    def test_names_every_fault_on_a_line_of_its_own(self, tmp_path: Path) -> None:
        done = shunter("validate", written(tmp_path, changed(tiny_lm(), {"nmae": "x", "priority": "urgent"})))

        assert done.exit_code == 2
        assert {line.partition(":")[0] for line in done.stderr.splitlines()} == {"/nmae", "/priority"}

    def test_misses_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        shutil.copy(REPOSITORY / "examples" / "script-ddp" / "job.json", tmp_path / "job.json")

        done = shunter("validate", tmp_path / "job.json", "--source", tmp_path / "nowhere")

        assert done.exit_code == 2
        assert "is not a folder on this machine" in done.stderr


def test_without_a_service_the_exit_code_is_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_DATA_DIR", str(tmp_path))
    nothing = shunter("jobs")
    refused = shunter("jobs", "--url", "http://127.0.0.1:9", "--api-key", "k")

    assert (nothing.exit_code, refused.exit_code) == (4, 4)
    assert nothing.stderr.startswith("error: no service found")
    assert refused.stderr.startswith("error: the service at http://127.0.0.1:9 does not answer")
    assert "shunter up" in refused.stderr
