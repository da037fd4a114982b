"""Jobs on fakes of clouds, through the whole control plane: real workers, real HTTP, and real agents on the nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from shunter_providers.testing import CloudFault, Request, WireCloud
from shunter_providers.testing.booting import Boots
from support.clouds.lambda_cloud import LambdaCloud
from support.clouds.runpod import RunpodCloud
from support.control_plane import ControlPlane, control_plane, plain
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FOR_EVER: Final = 100_000
REACHABLE: Final = "127.0.0.2"
"""Nodes of clouds are told an address; the plane's own loopback address is only for nodes that share its files."""


class Account(NamedTuple):
    """A configured instance."""

    plugin: str
    trouble: CloudFault | None = None
    key_is_good: bool = True


ACCOUNTS: Final[Mapping[str, Account]] = {
    "runpod": Account("runpod"),
    "lambda": Account("lambda"),
    "broke": Account("runpod", CloudFault.PAYMENT),
    "limited": Account("runpod", CloudFault.QUOTA),
    "full": Account("runpod", CloudFault.NO_CAPACITY),
    "full-too": Account("lambda", CloudFault.NO_CAPACITY),
    "locked": Account("runpod", key_is_good=False),
}


class World(NamedTuple):
    """A control plane, and the clouds that its instances are configured with."""

    plane: ControlPlane
    clouds: Mapping[str, WireCloud]

    def is_empty(self) -> bool:
        """No cloud has a node."""
        return all(cloud.nodes() == [] for cloud in self.clouds.values())

    def creates(self, *names: str) -> list[Request]:
        """Calls that make a node."""
        calls = [call for name in names for call in self.clouds[name].calls if call.method == "POST"]
        return [call for call in calls if call.path.endswith(("/pods", "/launch"))]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with ExitStack() as stack:
        clouds = {
            name: stack.enter_context(running(name, folder / name, account)) for name, account in ACCOUNTS.items()
        }
        providers = {name: configured(name, clouds[name], account) for name, account in ACCOUNTS.items()}
        variables = {"SHUNTER_PROVIDERS": json.dumps(providers)}
        plane = stack.enter_context(control_plane(folder / "data", REACHABLE, **variables))
        yield World(plane, clouds)


def running(name: str, folder: Path, account: Account) -> WireCloud:
    kind = RunpodCloud if account.plugin == "runpod" else LambdaCloud
    cloud: WireCloud = kind(key_of(name), boots=Boots(folder))
    if account.trouble is not None:
        cloud.strike(account.trouble, times=FOR_EVER)
    return cloud


def key_of(name: str) -> str:
    """Each account has its own, or they would share their pace."""
    return f"the-key-of-the-account-{name}"


def configured(name: str, cloud: WireCloud, account: Account) -> dict[str, Any]:
    key = key_of(name) if account.key_is_good else "a-key-that-nobody-knows"
    path = "v2" if account.plugin == "runpod" else "api/v1"
    settings = {"api_key": key, "base_url": f"{cloud.url}/{path}", "timeout_s": 10}
    quick = {"visibility_delay_s": 0.5, "scan_interval_s": 1.0}
    return {"plugin": account.plugin, "settings": {**settings, **quick}}


@pytest.mark.parametrize("name", ["runpod", "lambda"])
def test_a_job_runs_on_a_real_agent_of_the_cloud_and_leaves_it_empty(world: World, name: str) -> None:
    job_id = world.plane.submit(plain("echo", f"on {name}", placement={"providers": [name]}))

    job = world.plane.wait_for(job_id, "succeeded", timeout_s=120)

    wait_until(world.is_empty, timeout_s=60, description="the clouds are empty")
    assert world.plane.lines(job_id) == [f"on {name}"]
    assert [(node["provider"], node["state"]) for node in job["nodes"]] == [(name, "gone")]


def test_a_job_goes_past_clouds_without_money_quota_room_or_a_valid_key_and_says_why(world: World) -> None:
    tried = ["broke", "limited", "full", "locked", "lambda"]
    job_id = world.plane.submit(plain("echo", "at last", placement={"providers": tried}))

    job = world.plane.wait_for(job_id, "succeeded", timeout_s=150)

    events = [event["data"] for event in world.plane.events(job_id) if event["type"] == "node.create_failed"]
    shown = {item["name"]: item for item in world.plane.http("GET", "/v1/providers").json()["items"]}
    wait_until(world.is_empty, timeout_s=60, description="the clouds are empty")
    assert job["nodes"][-1]["provider"] == "lambda"
    assert {(data["provider"], data["fault"]) for data in events} == {
        ("broke", "payment"),
        ("limited", "quota"),
        ("full", "no_capacity"),
    }
    assert any("insufficient balance" in data["detail"] for data in events)
    assert shown["locked"]["status"] == "error"
    assert "401 Unauthorized: missing bearer token" in shown["locked"]["detail"]


def test_a_job_for_the_union_never_sends_a_create_elsewhere_even_if_it_has_to_wait(world: World) -> None:
    before = len(world.creates("full", "full-too"))
    placement = {"jurisdictions": ["EU"], "providers": ["full", "full-too"]}
    job_id = world.plane.submit(plain("true", placement=placement))

    wait_until(
        lambda: len(world.creates("full", "full-too")) >= before + 2, timeout_s=90, description="both were asked"
    )
    world.plane.cancel(job_id)
    world.plane.wait_for(job_id, "cancelled", timeout_s=60)

    asked = [call.json() for call in world.creates("full", "full-too")[before:]]
    places = {place for body in asked for place in body.get("dataCenterIds", [body.get("region_name")])}
    assert places <= {"EU-RO-1", "europe-central-1"}


def test_offers_of_all_clouds_come_at_once_with_the_error_of_the_one_that_is_locked(world: World) -> None:
    wait_until(lambda: offers(world)["total"] > 0, timeout_s=60, description="workers read the offers")

    found = offers(world)

    sources = {source["name"]: source["status"] for source in found["sources"]}
    assert sources["locked"] == "error"
    assert sources["runpod"] == sources["lambda"] == "ok"
    assert {"runpod", "lambda"} <= {item["provider"] for item in found["items"]}
    assert all(item["price"]["usd_per_hour"] > 0 for item in found["items"])


def offers(world: World) -> dict[str, Any]:
    answer: dict[str, Any] = world.plane.http("GET", "/v1/offers").json()
    return answer
