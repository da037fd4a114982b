"""`shunter provider`: what it lists, what it checks, what it says where something is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shunter_providers.checking import cheapest, check_spending
from shunter_providers.clouds.lambda_cloud import LambdaProvider
from shunter_providers.contract import Availability, Instance, Offer, Price
from shunter_providers.testing import CloudFault, Unpaced
from shunter_workers.provider.commands import app
from support.clouds.lambda_cloud import LambdaCloud
from support.clouds.runpod import RunpodCloud
from typer.testing import CliRunner, Result

KEY = "the-key-of-the-test-account"


@pytest.fixture
def cloud() -> Iterator[RunpodCloud]:
    with RunpodCloud(KEY) as running:
        yield running


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service's data directory, and no variable that speaks of providers."""
    monkeypatch.setenv("SHUNTER_DATA_DIR", str(tmp_path))
    for name in ("RUNPOD_API_KEY", "LAMBDA_API_KEY", "LAMBDA_CLOUD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def configure(data_dir: Path, cloud: RunpodCloud, key: str = KEY) -> None:
    (data_dir / "shunter.toml").write_text(
        "[providers.local]\n"
        f'[providers.mine]\nplugin = "runpod"\n[providers.mine.settings]\napi_key = "{key}"\n'
        f'base_url = "{cloud.url}/v2"\ntimeout_s = 2\n'
        '[providers.half]\nplugin = "lambda"\n'
        '[providers.strange]\nplugin = "nowhere"\n'
        '[providers.held]\nplugin = "local"\npaused = true\n'
    )


def provider(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_plugins_and_instances_are_listed_with_what_is_wrong_with_each(data_dir: Path, cloud: RunpodCloud) -> None:
    configure(data_dir, cloud)

    rows = json.loads(provider("list", "--json").stdout)

    found = {(row["kind"], row["name"]): row["state"] for row in rows}
    assert found["plugin", "runpod"] == found["plugin", "lambda"] == "loads"
    assert found["instance", "mine"].startswith("ready to be asked")
    assert "api_key is missing" in found["instance", "half"]
    assert "SHUNTER_HALF_API_KEY" in found["instance", "half"]
    assert "there is no provider plugin 'nowhere' (installed:" in found["instance", "strange"]
    assert found["instance", "held"] == "the operator has paused it"


def test_a_check_asks_nobody_without_being_told_to(data_dir: Path, cloud: RunpodCloud) -> None:
    configure(data_dir, cloud)

    said = provider("check", "mine")

    assert said.exit_code == 0
    assert cloud.calls == []


def test_a_live_check_costs_nothing_and_says_what_is_offered(data_dir: Path, cloud: RunpodCloud) -> None:
    configure(data_dir, cloud)

    said = provider("check", "mine", "--live")

    assert said.exit_code == 0, said.stdout
    assert "the credentials work" in said.stdout
    assert "the cheapest cpu cpu3c 2 at 0.07 USD an hour" in said.stdout
    assert {call.method for call in cloud.calls} == {"GET"}


def test_a_key_that_is_not_valid_is_told_with_the_way_out_and_without_the_key(
    data_dir: Path, cloud: RunpodCloud
) -> None:
    configure(data_dir, cloud, key="a-key-that-nobody-knows")

    said = provider("check", "mine", "--live")

    assert said.exit_code == 1
    assert "FAILED  identity: auth: 401 Unauthorized: missing bearer token - check the credentials" in said.stdout
    assert "a-key-that-nobody-knows" not in said.output


def test_money_is_spent_only_when_somebody_agrees(data_dir: Path, cloud: RunpodCloud) -> None:
    configure(data_dir, cloud)

    refused = CliRunner().invoke(app, ["check", "mine", "--spend"], input="n\n")

    assert "Make one cpu cpu3c 2" in refused.output
    assert {call.method for call in cloud.calls} == {"GET"}


def test_a_node_runs_through_its_life_and_nothing_is_left(data_dir: Path, cloud: RunpodCloud) -> None:
    configure(data_dir, cloud)

    said = provider("check", "mine", "--spend", "--yes", "--json")

    findings = {one["check"]: one["ok"] for one in map(json.loads, said.stdout.splitlines())}
    assert said.exit_code == 0, said.stdout
    assert findings["create"] is findings["find"] is findings["boot"] is findings["end"] is True
    assert cloud.nodes() == []


async def test_a_node_that_is_refused_is_a_finding_and_nothing_is_left() -> None:
    with LambdaCloud(KEY) as cloud:
        cloud.strike(CloudFault.LOST_REPLY)
        settings = {"api_key": KEY, "base_url": f"{cloud.url}/api/v1", "timeout_s": 2}
        checked = LambdaProvider(Instance("lambda", "lambda", settings, pacer=Unpaced()))

        findings = {finding.check: finding async for finding in check_spending(checked)}

        await checked.close()
        assert findings["create"].ok is False
        assert findings["find"].ok is findings["end"].ok is True
        assert cloud.nodes() == []


@pytest.mark.parametrize("name", ["nobody", ""])
def test_an_instance_that_there_is_not_is_refused_with_those_that_there_are(data_dir: Path, name: str) -> None:
    said = provider("check", name)

    assert said.exit_code == 2
    assert "plugins: " in said.output
    assert "runpod" in said.output


def test_a_plugin_alone_is_checked_by_its_variables(
    data_dir: Path, cloud: RunpodCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    monkeypatch.setenv("SHUNTER_RUNPOD_BASE_URL", f"{cloud.url}/v2")

    said = provider("check", "runpod", "--live")

    assert said.exit_code == 0, said.stdout


def test_settings_that_cannot_be_read_are_told(data_dir: Path) -> None:
    (data_dir / "shunter.toml").write_text("[providers.mine]\nplugins = 3\n")

    said = provider("list")

    assert said.exit_code == 2
    assert "providers.mine.plugins" in said.output


def test_a_new_plugin_is_written_where_nothing_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    first, second = provider("new", "my-cloud"), provider("new", "my-cloud")

    assert first.exit_code == 0
    assert "my_cloud_provider/shunter_my_cloud/provider.py" in first.stdout
    assert "shunter provider check my-cloud" in first.stdout
    assert second.exit_code == 2
    assert "holds something already" in second.output


def test_the_cheapest_is_steady_and_to_be_had() -> None:
    def offer(name: str, usd: float, **more: Any) -> Offer:
        return Offer(name, "here", "DE", Price(gpu_usd_per_hour=usd, **more.pop("price", {})), **more)

    offers = [
        offer("spot", 1.0, capacity="spot"),
        offer("taken", 2.0, availability=Availability.NONE),
        offer("set-up", 3.0, price={"setup_usd": 99.0}),
        offer("this", 5.0),
        offer("dear", 6.0),
    ]

    found = cheapest(offers)

    assert found is not None
    assert found.instance_type == "this"
    assert cheapest([]) is None
