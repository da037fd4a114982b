"""Checkpoints: uploaded whole, resumed from verified, fenced by what the service committed."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

from support.agents import JOB, TRAINING, AgentMaker, AgentProcess, assignment, command, python, trainer
from support.node_service import NodeService
from support.waiting import wait_until

WRITE = """
import hashlib, json, os, pathlib, shutil, signal, sys, time
home = pathlib.Path(os.environ["SHUNTER_CHECKPOINT_DIR"])

def checkpoint(step, text, keep=1):
    partial = home / f".tmp-{step}"
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "shards").mkdir(parents=True)
    files = {"shards/0.pt": text, "meta.json": "{}"}
    listed = []
    for name, content in files.items():
        (partial / name).write_text(content)
        digest = hashlib.sha256(content.encode()).hexdigest()
        listed.append({"path": name, "size": len(content), "sha256": digest})
    manifest = {"format": "shunter-checkpoint/1", "step": step, "values": {"val_loss": 1 / step}, "files": listed}
    (partial / "manifest.json").write_text(json.dumps(manifest))
    partial.rename(home / f"step-{step:08d}")
    for old in sorted(home.glob("step-*"))[:-keep]:
        shutil.rmtree(old)
"""
SLEEP = "\nprint('written', flush=True)\ntime.sleep(60)"


def test_a_checkpoint_is_uploaded_with_its_manifest_last(service: NodeService, make_agent: AgentMaker) -> None:
    trainer(make_agent(), WRITE + "checkpoint(100, 'weights')" + SLEEP).start()
    service.run(assignment(TRAINING))

    found = service.wait_for("checkpoint")

    prefix = f"{JOB}/1/checkpoints/step-00000100/"
    assert (found["step"], found["node_rank"], found["values"]) == (100, 0, {"val_loss": 0.01})
    assert [file["path"] for file in found["files"]] == ["meta.json", "shards/0.pt", "manifest.json"]
    assert [file["object"] for file in found["files"]] == [prefix + file["path"] for file in found["files"]]
    assert service.objects[prefix + "shards/0.pt"] == b"weights"
    digest = hashlib.sha256(b"weights").hexdigest()
    assert found["files"][1] == {"path": "shards/0.pt", "size": 7, "sha256": digest, "object": prefix + "shards/0.pt"}


def test_files_of_a_checkpoint_go_up_side_by_side(service: NodeService, make_agent: AgentMaker) -> None:
    both = threading.Barrier(2)

    def hold(key: str) -> None:
        """Until another file is under way, too."""
        if not key.endswith("manifest.json"):
            both.wait(60)

    service.refuse_puts = hold
    trainer(make_agent(), WRITE + "checkpoint(100, 'weights')" + SLEEP).start()
    service.run(assignment(TRAINING))

    found = service.wait_for("checkpoint")

    assert [file["path"] for file in found["files"]] == ["meta.json", "shards/0.pt", "manifest.json"]


def test_pruning_on_the_node_does_not_tear_an_upload(service: NodeService, make_agent: AgentMaker) -> None:
    tried: list[str] = []
    service.refuse_puts = lambda key: tried.append(key) or 503  # type: ignore[func-returns-value]
    program = (
        WRITE
        + "checkpoint(1, 'one')\n"
        + "go = pathlib.Path(os.environ['SHUNTER_OUTPUT_DIR'], 'go')\n"
        + "while not go.exists(): time.sleep(0.01)\n"
        + "checkpoint(2, 'two')\ntime.sleep(60)"
    )
    agent = trainer(make_agent(), program).start()
    service.run(assignment(TRAINING))
    wait_until(lambda: any("step-00000001" in key for key in tried), description="the first upload is tried")

    (agent.folder / "outputs/1/go").touch()
    wait_until(lambda: not (agent.folder / "checkpoints/step-00000001").exists(), description="it is pruned")
    service.refuse_puts = lambda key: None
    service.wait_for("checkpoint", 2)

    assert [data["step"] for data in service.data("checkpoint")] == [1, 2]
    assert service.objects[f"{JOB}/1/checkpoints/step-00000001/shards/0.pt"] == b"one"
    assert not (agent.folder / "holding/1/step-00000001").exists()


def test_the_last_checkpoint_of_a_stopped_gang_is_uploaded_before_drained(
    service: NodeService, make_agent: AgentMaker
) -> None:
    program = (
        WRITE
        + "signal.signal(signal.SIGTERM, lambda *_: (checkpoint(7, 'saved'), sys.exit(75)))\n"
        + "print('{\"event\": \"up\"}', file=open(os.environ['SHUNTER_METRICS_FILE'], 'w'), flush=True)\n"
        + "while True: time.sleep(0.05)"
    )
    trainer(make_agent(), program).start()
    service.run(assignment(TRAINING))
    service.wait_for("rank_up")

    service.stop()
    service.wait_for("drained")

    types = [record.type for record in service.records(generation=1)]
    assert service.data("checkpoint")[0]["step"] == 7
    assert service.data("stopped")[0]["exit_code"] == 75
    assert types.index("checkpoint") < types.index("drained") == len(types) - 1


def test_checkpoints_of_an_earlier_generation_are_not_uploaded_again(
    service: NodeService, make_agent: AgentMaker
) -> None:
    agent = trainer(make_agent(), WRITE + "checkpoint(10, 'first')").start()
    service.run(assignment(TRAINING))
    first = service.wait_for("checkpoint")
    service.wait_for("drained")

    trainer(agent, WRITE + "checkpoint(20, 'second', keep=2)")
    service.run(assignment(TRAINING, generation=2, resume=resume_point(first)))
    service.wait_for("drained", generation=2)

    assert [data["step"] for data in service.data("checkpoint", generation=2)] == [20]
    assert sorted(path.name for path in (agent.folder / "checkpoints").iterdir()) == ["step-00000010", "step-00000020"]


def test_a_trainers_checkpoint_that_was_never_committed_is_dropped(
    service: NodeService, make_agent: AgentMaker
) -> None:
    agent = trainer(make_agent(), WRITE + "checkpoint(10, 'a'); checkpoint(30, 'b', keep=2)").start()
    service.run(assignment(TRAINING))
    service.wait_for("drained")
    committed = next(data for data in service.data("checkpoint") if data["step"] == 10)

    service.run(assignment(TRAINING, generation=2, resume=resume_point(committed)))
    trainer(agent, "pass")
    service.wait_for("drained", generation=2)

    assert [path.name for path in (agent.folder / "checkpoints").iterdir()] == ["step-00000010"]


def test_a_node_without_the_checkpoint_fetches_it(service: NodeService, make_agent: AgentMaker) -> None:
    files = {"shards/0.pt": b"weights", "manifest.json": b'{"step": 4}'}
    resume = stored(service, 4, files)
    service.run(assignment(python(SHOW_RESUME), resume=resume, generation=2))

    make_agent().start()
    service.wait_for("drained")

    assert json.loads(service.log(0, "stdout", generation=2)) == {name: data.decode() for name, data in files.items()}
    assert [(data["part"], data["status"]) for data in service.data("prepare")] == [
        ("resume", "started"),
        ("resume", "done"),
    ]


def test_files_that_are_still_on_the_node_are_not_fetched(service: NodeService, make_agent: AgentMaker) -> None:
    agent = trainer(make_agent(), WRITE + "checkpoint(10, 'weights')").start()
    service.run(assignment(TRAINING))
    committed = service.wait_for("checkpoint")
    service.wait_for("drained")

    service.objects.clear()  # whoever asked for one now would fail
    service.run(assignment(python(SHOW_RESUME), generation=2, resume=resume_point(committed)))
    service.wait_for("drained", generation=2)

    assert json.loads(service.log(0, "stdout", generation=2))["shards/0.pt"] == "weights"
    assert agent.process.poll() is None


def test_a_checkpoint_whose_bytes_are_wrong_is_not_resumed_from(service: NodeService, make_agent: AgentMaker) -> None:
    resume = stored(service, 4, {"a": b"right"})
    service.objects["old/4/a"] = b"wrong"
    service.run(assignment(command("true"), resume=resume, generation=2))

    make_agent(environment={"SHUNTER_AGENT_RETRY_FIRST_S": "0.01", "SHUNTER_AGENT_RETRY_MOST_S": "0.01"}).start()
    failed = service.wait_for("failed")

    assert failed["reason"] == "setup_failed"
    assert "resume: old/4/a" in failed["message"]


def test_a_scripts_checkpoint_is_taken_when_complete_and_settled(service: NodeService, agent: AgentProcess) -> None:
    program = (
        "import os, pathlib, sys, time\n"
        "folder = pathlib.Path(sys.argv[1], 'checkpoint-40'); folder.mkdir()\n"
        "(folder / 'model.bin').write_text('half')\n"
        "pathlib.Path(sys.argv[1], 'checkpoint-99').mkdir()\n"
        "time.sleep(1)\n"
        "(folder / 'model.bin').write_text('whole')\n"
        "(folder / 'trainer_state.json').write_text('{\"global_step\": 41}')\n"
        "time.sleep(60)"
    )
    workload = python(
        program,
        arguments=["${checkpoint_dir}"],
        checkpoint={"pattern": "checkpoint-*", "complete_file": "trainer_state.json"},
    )
    service.run(assignment(workload))

    found = service.wait_for("checkpoint")

    assert found["step"] == 41
    assert service.objects[f"{JOB}/1/checkpoints/step-00000041/model.bin"] == b"whole"
    assert len(service.records("checkpoint")) == 1


def test_a_script_resumes_with_its_own_arguments(service: NodeService, agent: AgentProcess) -> None:
    workload = command(
        "echo",
        arguments=["--out", "${output_dir}"],
        resume_arguments=["--resume_from_checkpoint", "${latest_checkpoint}"],
    )
    service.run(assignment(workload))
    service.wait_for("drained")

    service.run(assignment(workload, generation=2, resume=stored(service, 4, {"a": b"x"})))
    service.wait_for("drained", generation=2)

    home = agent.folder
    assert service.log(0, "stdout").decode() == f"--out {home}/outputs/1\n"
    expected = f"--out {home}/outputs/2 --resume_from_checkpoint {home}/resume/step-00000004\n"
    assert service.log(0, "stdout", generation=2).decode() == expected


def test_outputs_become_artifacts(tmp_path: Path, service: NodeService, agent: AgentProcess) -> None:
    (tmp_path / "secret").write_text("not yours")
    program = (
        "import os, pathlib\n"
        "out = pathlib.Path(os.environ['SHUNTER_OUTPUT_DIR']); (out / 'deep').mkdir()\n"
        "(out / 'deep/model.bin').write_bytes(b'm' * 3000); (out / 'empty').touch(); (out / 'ä b').write_text('x')\n"
        f"(out / 'link').symlink_to('deep/model.bin'); (out / 'out').symlink_to({str(tmp_path / 'secret')!r})\n"
        "raise SystemExit(3)"
    )
    service.run(assignment(python(program)))

    service.wait_for("drained")

    found = {data["file"]["path"]: data["file"]["size"] for data in service.data("artifact")}
    assert found == {"deep/model.bin": 3000, "empty": 0, "link": 3000, "ä b": 1}
    assert service.objects[f"{JOB}/1/artifacts/ä b"] == b"x"
    (left_out,) = service.data("outputs_left_out")
    assert (left_out["count"], list(left_out["left_out"])) == (1, ["out"])
    assert len(service.records("failed")) == 1


def test_another_nodes_part_has_keys_of_its_own(service: NodeService, make_agent: AgentMaker) -> None:
    trainer(make_agent(), WRITE + "checkpoint(5, 'weights')").start()
    service.run(assignment(TRAINING, ranks={"node_rank": 1, "num_nodes": 2, "master_port": 29500}))

    found = service.wait_for("checkpoint")

    assert found["node_rank"] == 1
    assert {file["path"] for file in found["files"]} == {"meta.json", "shards/0.pt", "manifest.json"}
    assert all("/step-00000005/.node-1/" in file["object"] for file in found["files"])


SHOW_RESUME = """
import json, os, pathlib
home = pathlib.Path(os.environ["SHUNTER_RESUME_DIR"])
found = {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}
print(json.dumps(found))
"""


def stored(service: NodeService, step: int, files: dict[str, bytes]) -> dict[str, Any]:
    refs = [service.store(f"old/{step}/{name}", data).model_copy(update={"path": name}) for name, data in files.items()]
    return {"generation": 1, "step": step, "files": [ref.model_dump() for ref in refs]}


def resume_point(checkpoint: dict[str, Any]) -> dict[str, Any]:
    return {"generation": 1, "step": checkpoint["step"], "files": checkpoint["files"]}
