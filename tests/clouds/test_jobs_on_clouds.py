"""Jobs on fakes of clouds, through the whole control plane: real workers, real HTTP, and real agents on the nodes.

Nodes that the service reaches by SSH are hosts, each with an sshd of its own that has the keys of the order alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import pytest
from shunter_providers.testing import CloudFault
from shunter_store.installation import signing
from shunter_store.node import ledger
from shunter_workers.settings import signing_secret
from support.clouds.accounts import FAKES
from support.clouds.consoles import CONSOLE
from support.clouds.real_nodes import real_nodes
from support.clouds.world import Account, World, world_of
from support.control_plane import plain
from support.hosts.needs import why_no_hosts
from support.waiting import wait_until

_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AS_PODS: Final = ("coreweave", "kubernetes")
"""Whose nodes are told to start their agents: `test_jobs_on_clusters`."""
OVER_SSH: Final = {name: Account(name, settings={"scan_interval_s": 2.0}) for name in FAKES if name not in AS_PODS}
TOLD: Final = ("runpod-told", "lambda-told")
"""Instances whose provider starts the agent."""
WITHOUT_CPU_NODES: Final = ("hetzner-robot", "paperspace", "vast")
ACCOUNTS: Final[Mapping[str, Account]] = {
    **OVER_SSH,
    "runpod-told": Account("runpod", settings={"start_by": "provider", "scan_interval_s": 1.0}),
    "lambda-told": Account("lambda", settings={"start_by": "provider", "scan_interval_s": 1.0}),
    "broke": Account("digitalocean", CloudFault.PAYMENT),
    "limited": Account("gcp", CloudFault.QUOTA),
    "crowded": Account("aws", CloudFault.NO_CAPACITY, settings={"usd_per_hour": {"m7i.large": 0.05}}),
    "expired": Account("runpod", CloudFault.AUTH, on="create"),
    "dead": Account("aws", CloudFault.NEVER_BOOTS, settings={"readiness_deadline_s": 8.0, "scan_interval_s": 2.0}),
    "locked": Account("paperspace", key_is_good=False),
    "full": Account("runpod", CloudFault.NO_CAPACITY),
    "full-too": Account("lambda", CloudFault.NO_CAPACITY),
}


class Refusal(NamedTuple):
    """What comes of an account's trouble."""

    fault: str
    words: str
    """Those of the provider, which an operator reads."""
    scope: str = ""
    way_out: str = ""
    """On the provider's page, where credentials, money or quota are the reason."""


REFUSALS: Final[Mapping[str, Refusal]] = {
    "broke": Refusal("payment", "Your account is locked for a billing issue", "account", "the account needs money"),
    "limited": Refusal("quota", "Quota", "region", "ask the provider for a higher quota"),
    "expired": Refusal("auth", "401 Unauthorized: invalid bearer token", "account", "check the credentials"),
    "crowded": Refusal("no_capacity", "InsufficientInstanceCapacity"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with ExitStack() as stack:
        machines = None if why_no_hosts() else stack.enter_context(real_nodes(folder / "machines"))
        yield stack.enter_context(world_of(folder, ACCOUNTS, machines))


@pytest.fixture(scope="module")
def jobs(world: World) -> Mapping[str, str]:
    """All of them at once, since they wait most of their time: by instance, or by what becomes of them."""
    refused = {"placement": {"providers": [*REFUSALS, "locked"]}}
    past = {"placement": {"providers": [*REFUSALS, "locked", "lambda-told"]}}
    documents = {
        "goes past": plain("echo", "at last", **past),
        "is refused": plain("true", **refused),
        "never comes up": plain("true", placement={"providers": ["dead"]}),
        **{name: greeting(name) for name in (*TOLD, *([] if why_no_hosts() else OVER_SSH))},
    }
    return {name: world.plane.submit(document) for name, document in documents.items()}


def greeting(name: str) -> dict[str, Any]:
    """On a node of this instance only."""
    asked = {"gpus": 1} if name in WITHOUT_CPU_NODES else {"cpu_processes": 1}
    return plain("echo", f"on {name}", resources=asked, placement={"providers": [name]})


@pytest.mark.parametrize("name", sorted(OVER_SSH))
def test_a_job_runs_on_an_agent_that_came_over_the_node_s_own_ssh_and_leaves_the_cloud_empty(
    world: World, jobs: Mapping[str, str], name: str
) -> None:
    if why := why_no_hosts():
        pytest.skip(why)

    job = world.plane.wait_for(jobs[name], "succeeded", timeout_s=200)

    wait_until(lambda: world.is_empty(name), timeout_s=120, description=f"{name} is empty")
    assert world.plane.lines(jobs[name]) == [f"on {name}"]
    assert made(job) == [(name, "gone")], told(world, jobs[name])
    assert not was_told_a_token(world, name, job["id"])


def made(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Instance and state of each node that there was: a create call that had to wait for its turn made none."""
    return [(node["provider"], node["state"]) for node in job["nodes"] if node.get("handle")]


def told(world: World, job_id: str) -> list[str]:
    """What became of the job's nodes, for whoever reads a failure."""
    return [f"{event['type']} {event['data']}" for event in world.plane.events(job_id) if "node" in event["type"]]


def was_told_a_token(world: World, name: str, job_id: str) -> bool:
    """Whether the provider was given what opens the way to the service, in whatever wrapping."""
    secret = signing_secret(world.plane.data_dir)
    with world.plane.database() as database:
        rows = database.read(lambda conn: ledger.of_job(conn, job_id))
    told = b"".join(unwrapped(call.body) for call in world.clouds[name].calls)
    assert any(row.token.encode() in told for row in rows), "the provider knows nothing of the node"
    return any(signing.node_sync_token(secret, row.token).encode() in told for row in rows)


def unwrapped(body: bytes, depth: int = 3) -> bytes:
    """A body, and whatever stands in it in base64."""
    plain_text = unquote_to_bytes(body)
    inner = [base64.b64decode(found[: len(found) // 4 * 4]) for found in _BASE64.findall(plain_text)] if depth else []
    return plain_text + b"".join(unwrapped(one, depth - 1) for one in inner)


@pytest.mark.parametrize("name", TOLD)
def test_a_job_runs_on_an_agent_that_the_provider_was_told_to_start_and_leaves_it_empty(
    world: World, jobs: Mapping[str, str], name: str
) -> None:
    job = world.plane.wait_for(jobs[name], "succeeded", timeout_s=200)

    wait_until(lambda: world.is_empty(name), timeout_s=120, description=f"{name} is empty")
    assert world.plane.lines(jobs[name]) == [f"on {name}"]
    assert made(job) == [(name, "gone")], told(world, jobs[name])
    assert was_told_a_token(world, name, jobs[name])


def test_a_job_goes_past_clouds_without_money_quota_room_or_a_valid_key_and_says_why(
    world: World, jobs: Mapping[str, str]
) -> None:
    job_id = jobs["goes past"]

    job = world.plane.wait_for(job_id, "succeeded", timeout_s=200)

    # What one job found out of an account, the other one need not.
    events = [event for name in ("is refused", "goes past") for event in world.plane.events(jobs[name])]
    told = {event["data"]["provider"]: event["data"] for event in events if event["type"] == "node.create_failed"}
    wait_until(lambda: world.is_empty(*REFUSALS, "lambda-told"), timeout_s=120, description="the clouds are empty")
    assert job["nodes"][-1]["provider"] == "lambda-told"
    assert {name: told[name]["fault"] for name in REFUSALS} == {name: one.fault for name, one in REFUSALS.items()}
    assert [name for name, one in REFUSALS.items() if one.words not in told[name]["detail"]] == []


def test_a_job_that_is_refused_everywhere_waits_and_its_page_and_the_providers_say_for_what(
    world: World, jobs: Mapping[str, str]
) -> None:
    job_id = jobs["is refused"]
    waited: dict[str, Any] = {}
    shown: dict[str, Any] = {}

    def all_is_told() -> bool:
        waited.update(world.plane.job(job_id).get("waiting") or {})
        shown.update({item["name"]: item for item in world.plane.http("GET", "/v1/providers").json()["items"]})
        tried = {tried["provider"] for tried in waited.get("tried", ())}
        told = {name for name, one in REFUSALS.items() if not one.scope or "refusal" in shown[name]}
        return tried >= {*REFUSALS, "locked"} and told == set(REFUSALS)

    wait_until(all_is_told, timeout_s=150, description="each refused, and it is said")
    world.plane.cancel(job_id)
    world.plane.wait_for(job_id, "cancelled", timeout_s=60)

    details = {name: [one["detail"] for one in waited["tried"] if one["provider"] == name] for name in REFUSALS}
    refusals = {name: shown[name]["refusal"] for name, one in REFUSALS.items() if one.scope}
    assert [name for name, one in REFUSALS.items() if one.words not in str(details[name])] == []
    assert {name: (one["fault"], one["scope"]) for name, one in refusals.items()} == {
        name: (REFUSALS[name].fault, REFUSALS[name].scope) for name in refusals
    }
    assert [name for name, one in refusals.items() if REFUSALS[name].words not in one["detail"]] == []
    assert [name for name, one in refusals.items() if REFUSALS[name].way_out not in one["detail"]] == []
    assert "refusal" not in shown["crowded"]
    assert shown["locked"]["status"] == "error"
    assert "401" in shown["locked"]["detail"]
    assert {"maxTotalCores": 1000, "maxTotalInstances": 500}.items() <= shown["ovh"]["limits"].items()
    assert world.is_empty(*REFUSALS)


def test_a_node_that_never_comes_up_leaves_its_console_in_the_job_s_debug_report(
    world: World, jobs: Mapping[str, str]
) -> None:
    job_id = jobs["never comes up"]

    wait_until(lambda: CONSOLE in consoles(world, job_id), timeout_s=90, description="the console was read")
    wait_until(lambda: "gone" in states(world, job_id), timeout_s=120, description="the node was given up")
    world.plane.cancel(job_id)
    world.plane.wait_for(job_id, "cancelled", timeout_s=60)

    wait_until(lambda: world.is_empty("dead"), timeout_s=60, description="the cloud is empty")
    assert CONSOLE in consoles(world, job_id)


def consoles(world: World, job_id: str) -> list[str]:
    report = world.plane.http("GET", f"/v1/jobs/{job_id}/debug").json()
    return [found["facts"].get("console", "") for found in report["parts"]["bootstraps"].values()]


def states(world: World, job_id: str) -> list[str]:
    return [node["state"] for node in world.plane.job(job_id)["nodes"]]


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
