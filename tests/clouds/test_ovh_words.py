"""What a real nova said, recorded (`test_ovh_on_nova.py`): the fake says the same, and the plugin reads it right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from shunter_providers.cloud_kit.faults import Refused, classify
from shunter_providers.clouds.ovh.openstack import FAULTS
from shunter_providers.contract import Fault, Scope
from support.clouds.nova_probes import ANSWERS, Probed, answers_of, fits
from support.clouds.ovh import PROJECT, USER, OvhCloud

PASSWORD = "a-secret-of-some-length"
RECORDED: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text(encoding="utf-8"))
REGION = "DE1"


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, dict[str, Any]]]:
    with (
        OvhCloud(PASSWORD, list_lag_s=0.0, boot_s=0.0) as cloud,
        httpx.Client(trust_env=False, headers={"X-Auth-Token": sign_in(cloud)}) as http,
    ):
        cloud.used = dict.fromkeys(cloud.used, 0)

        def ask(method: str, path: str, body: Any) -> tuple[int, Any]:
            content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            answer = http.request(method, f"{cloud.url}/nova/{REGION}/v2.1{path}", content=content)
            return answer.status_code, answer.json() if answer.content else None

        flavor = next(one["id"] for one in cloud.flavors[REGION] if one["name"] == "b3-8")
        image, network = cloud.images["Ubuntu 24.04"], cloud.networks["Ext-Net"]
        yield answers_of(Probed(ask, lambda cores: cloud.quotas.update(cores=cores), flavor, image, network))


def sign_in(cloud: OvhCloud) -> str:
    user = {"name": USER, "password": PASSWORD, "domain": {"name": "Default"}}
    identity = {"methods": ["password"], "password": {"user": user}}
    body = {"auth": {"identity": identity, "scope": {"project": {"id": PROJECT}}}}
    answer = httpx.post(f"{cloud.url}/v3/auth/tokens", json=body, trust_env=False)
    return answer.headers["X-Subject-Token"]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_fake_answers_as_nova_did(answers: dict[str, dict[str, Any]], name: str) -> None:
    recorded = RECORDED[name]

    answer = answers[name]

    assert (answer["status"], answer.get("refusal")) == (recorded["status"], recorded.get("refusal"))
    assert fits(answer.get("form"), recorded.get("form"))


def test_nothing_was_asked_of_the_one_and_not_of_the_other(answers: dict[str, dict[str, Any]]) -> None:
    assert answers.keys() == RECORDED.keys()


@pytest.mark.parametrize(
    ("status", "code", "message", "fault", "scope"),
    [
        (403, "forbidden", "Maximum number of ports exceeded", Fault.QUOTA, Scope.REGION),
        (403, "forbidden", "Maximum number of security groups or rules exceeded", Fault.QUOTA, Scope.REGION),
        (403, "forbidden", "Quota exceeded, too many servers in group", Fault.QUOTA, Scope.REGION),
        (403, "forbidden", "Policy doesn't allow os_compute_api:servers:create to be performed.", Fault.AUTH, None),
        (400, "badRequest", "Can not find requested image", Fault.INVALID, None),
        (400, "badRequest", "Flavor's disk is too small for requested image.", Fault.INVALID, None),
        (409, "conflictingRequest", "Failed to delete allocations for consumer 7", Fault.TRANSIENT, None),
        (500, "computeFault", "Unexpected API Error. Please report this", Fault.TRANSIENT, None),
    ],
)
def test_what_nova_says_no_with_is_known(
    status: int, code: str, message: str, fault: Fault, scope: Scope | None
) -> None:
    error = classify(Refused(status, code, message), FAULTS, creates=True)

    assert error.fault is fault
    assert scope in (None, error.scope)
    assert error.may_have_created is (status >= 500)
