"""What providers say of their nodes and of the account, through real parts: a missing image, a queue, no money."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from shunter_providers.simulated.books import Books
from support.control_plane import ControlPlane, control_plane, plain
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

IMAGE = "registry.example/acme/train:1"


def cloud(usd_per_hour: float, *faults: dict[str, Any], **settings: Any) -> dict[str, Any]:
    kinds = [{"name": "small", "usd_per_hour": usd_per_hour, "cpu_slots": 1, "cpus": 1}]
    given = {"boot_s": 0.1, "types": kinds, "regions": [{"name": "eu"}], "faults": faults, **settings}
    return {"plugin": "simulated", "settings": given}


CLOUDS = {
    "imageless": cloud(0.1, {"fault": "no_image", "times": None}, runs_images=True),
    "queueing": cloud(0.1, {"fault": "queued", "delay_s": 4}),
    "broke": cloud(0.1, {"fault": "payment", "verb": "create", "times": 2}),
    "rich": cloud(0.2),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("vendors") / "data"
    with control_plane(folder, SHUNTER_PROVIDERS=json.dumps(CLOUDS)) as running:
        yield running


def on(*instances: str, **parts: Any) -> dict[str, Any]:
    return plain("true", placement={"providers": list(instances)}, **parts)


def creates(plane: ControlPlane, name: str) -> int:
    """How often this cloud was asked for a node."""
    with Books(plane.data_dir / "simulated" / f"{name}.sqlite").writing() as page:
        return sum(call.verb == "create" for call in page.calls())


def test_a_job_whose_image_does_not_exist_ends_with_the_providers_words_and_leaves_nothing(plane: ControlPlane) -> None:
    job_id = plane.submit(on("imageless", environment={"image": IMAGE}))

    job = plane.wait_for(job_id, "failed", timeout_s=90)

    assert job["reason"] == "invalid"
    assert job["message"] == f"environment.image {IMAGE}: imageless: 404 its image does not exist"
    assert [node["state"] for node in job["nodes"]] == ["gone"]
    assert creates(plane, "imageless") == 1


def test_a_job_in_the_providers_queue_says_so_costs_nothing_meanwhile_and_then_runs(plane: ControlPlane) -> None:
    job_id = plane.submit(on("queueing"))

    wait_until(
        lambda: (plane.job(job_id).get("waiting") or {}).get("reason") == "queued_at_provider",
        timeout_s=60,
        description="the queue is told of",
    )
    plane.wait_for(job_id, "succeeded", timeout_s=90)

    assert plane.job(job_id).get("waiting") is None
    assert creates(plane, "queueing") == 1


def test_an_account_without_money_is_asked_by_one_job_and_again_when_an_operator_says_so(plane: ControlPlane) -> None:
    for _ in range(2):
        job = plane.wait_for(plane.submit(on("broke", "rich")), "succeeded", timeout_s=90)
        assert job["nodes"][-1]["provider"] == "rich"
    asked_before = creates(plane, "broke")
    shown = {item["name"]: item for item in plane.http("GET", "/v1/providers").json()["items"]}

    lifted = plane.http("POST", "/v1/providers/broke/retry")
    plane.wait_for(plane.submit(on("broke", "rich")), "succeeded", timeout_s=90)

    assert asked_before == 1, "the second job knew"
    assert shown["broke"]["refusal"]["until"] > shown["broke"]["refusal"]["at"]
    assert lifted.status_code == 200
    assert creates(plane, "broke") == 2
