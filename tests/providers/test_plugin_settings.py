"""Settings of instances: where they come from, what is wrong with them, and that no secret is ever shown."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr
from shunter_providers.contract import Fault, Instance, ProviderError
from shunter_providers.plugin_settings import Variables, read_settings
from shunter_providers.redaction import SHOWN, redact, secrets_of
from shunter_providers.registry import Registry

SECRET = "s3cret-of-acme"


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    api_key: Annotated[SecretStr, Variables("ACME_API_KEY", "ACME_TOKEN")]
    pool: str = "all"


def read(name: str, settings: dict[str, Any] | None = None, **environment: str) -> Settings:
    return read_settings(Instance(name, "acme", settings or {}, environment=environment), Settings)


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("acme", {"ACME_API_KEY": SECRET}),
        ("acme", {"ACME_TOKEN": SECRET}),
        ("acme", {"SHUNTER_ACME_API_KEY": SECRET, "ACME_API_KEY": "another-one"}),
        ("acme-eu", {"SHUNTER_ACME_EU_API_KEY": SECRET}),
    ],
)
def test_a_credential_may_stand_in_a_variable(name: str, environment: dict[str, str]) -> None:
    assert read(name, {}, **environment).api_key.get_secret_value() == SECRET


def test_what_the_settings_say_goes_before_any_variable() -> None:
    found = read("acme", {"api_key": SECRET, "pool": "mine"}, ACME_API_KEY="another-one", SHUNTER_ACME_POOL="theirs")

    assert (found.api_key.get_secret_value(), found.pool) == (SECRET, "mine")


def test_the_vendors_own_variables_are_for_the_instance_with_its_plugins_name_alone() -> None:
    with pytest.raises(ProviderError) as refused:
        read("acme-eu", ACME_API_KEY=SECRET)

    assert refused.value.fault is Fault.INVALID
    assert refused.value.detail == (
        "providers.acme-eu: api_key is missing: set it in [providers.acme-eu.settings], "
        "or the variable SHUNTER_ACME_EU_API_KEY"
    )


def test_a_missing_setting_is_told_with_every_place_where_it_may_stand() -> None:
    with pytest.raises(ProviderError, match="SHUNTER_ACME_API_KEY or ACME_API_KEY or ACME_TOKEN"):
        read("acme")


def test_a_wrong_setting_is_named_and_its_value_is_not_shown() -> None:
    with pytest.raises(ProviderError, match="api_key: Input should be a valid string") as refused:
        read("acme", {"api_key": [SECRET]})

    assert SECRET not in str(refused.value)


def test_an_instance_shows_neither_settings_nor_variables() -> None:
    instance = Instance("acme", "acme", {"api_key": SECRET}, environment={"ACME_TOKEN": SECRET})

    assert SECRET not in repr(instance)


def test_secrets_are_found_by_their_names_wherever_they_lie() -> None:
    settings = {"api_key": SECRET, "auth": {"user": "tom-the-user", "password": "hunter2-hunter2"}, "region": "fra-one"}
    instance = Instance("acme", "acme", settings, environment={"ACME_TOKEN": "from-variable", "HOME": "/home/tom"})

    text = redact(f"{SECRET} hunter2-hunter2 from-variable fra-one /home/tom", secrets_of(instance))

    assert text == f"{SHOWN} {SHOWN} {SHOWN} fra-one /home/tom"


async def test_whatever_a_plugin_raises_its_callers_and_logs_see_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    class Leaky:
        capabilities = Registry({"local": Instance("local", "local", {}, "/tmp")}).get("local").capabilities

        def __init__(self, instance: Instance) -> None:
            self._key = instance.settings["api_key"]

        async def whoami(self) -> Any:
            raise ProviderError(Fault.AUTH, f"the key {self._key} was refused")

        async def offers(self, query: Any) -> Any:
            raise RuntimeError(f"GET https://acme/?key={self._key}")

    registry = Registry({"acme": Instance("acme", "acme", {"api_key": SECRET})}, lambda plugin: Leaky)  # type: ignore[arg-type,return-value]  # half a plugin is enough

    with pytest.raises(ProviderError, match=r"the key .redacted. was refused") as refused:
        await registry.get("acme").whoami()
    with pytest.raises(ProviderError, match="offers: RuntimeError") as broken:
        await registry.get("acme").offers(None)  # type: ignore[arg-type]  # as above

    assert refused.value.fault is Fault.AUTH
    assert SECRET not in f"{refused.value} {broken.value!r} {caplog.text}"
    assert SHOWN in caplog.text


def test_a_plugin_that_cannot_be_made_does_not_show_its_secret() -> None:
    def refuse(instance: Instance) -> Any:
        raise ValueError(f"bad key {instance.settings['api_key']}")

    registry = Registry({"acme": Instance("acme", "acme", {"api_key": SECRET})}, lambda plugin: refuse)

    with pytest.raises(ProviderError, match=r"providers\.acme: ValueError: bad key .redacted."):
        registry.get("acme")
