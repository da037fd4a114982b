"""What Azure offers: types with prices, limits and restrictions, by region."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shunter_providers.clouds.azure.settings import REGIONS, jurisdiction_of
from shunter_providers.contract import Availability, Fault, OfferQuery, ProviderError
from shunter_providers.jurisdictions import is_jurisdiction
from support.clouds.azure import AzureCloud
from support.clouds.azure_account import SECRET, azure, offer_of
from support.clouds.azure_market import A100, CPU, H100, price, sku


@pytest.fixture
def cloud() -> Iterator[AzureCloud]:
    with AzureCloud(SECRET) as running:
        yield running


async def test_offers_are_by_region_with_prices_of_the_list_or_the_catalogue_and_the_country(cloud: AzureCloud) -> None:
    provider = azure(cloud, regions="eastus,westeurope")

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {
        (o.instance_type, o.region, o.capacity, o.gpu_model, o.gpus, o.gpu_memory_gib, o.jurisdiction, o.price.live)
        for o in offers
    }
    assert shown == {
        (H100, "eastus", "on_demand", "H100", 1, 94, "US", True),
        (H100, "eastus", "spot", "H100", 1, 94, "US", True),
        (A100, "eastus", "on_demand", "A100", 8, 40, "US", False),
        (CPU, "eastus", "on_demand", None, 0, 0, "US", True),
        (H100, "westeurope", "on_demand", "H100", 1, 94, "NL", True),
        (H100, "westeurope", "spot", "H100", 1, 94, "NL", True),
        (CPU, "westeurope", "on_demand", None, 0, 0, "NL", True),
    }


async def test_a_price_is_that_of_a_virtual_machine_with_linux_and_disk_and_address_stand_beside_it(
    cloud: AzureCloud,
) -> None:
    provider = azure(cloud, disk_gib=100, disk_usd_per_gib_month=0.073, address_usd_per_hour=0.004)

    prices = {
        (o.instance_type, o.capacity): (o.price.gpu_usd_per_hour, round(o.price.disk_usd_per_hour, 6))
        for o in await provider.offers(OfferQuery())
    }

    await provider.close()
    assert prices[H100, "on_demand"] == (6.98, 0.014)
    assert prices[H100, "spot"] == (2.51, 0.014)
    assert prices[CPU, "on_demand"] == (0.192, 0.014)


async def test_the_dearest_of_two_prices_is_taken_and_one_of_nothing_never(cloud: AzureCloud) -> None:
    cloud.prices = [price(H100, "eastus", 6.98), price(H100, "eastus", 7.5), price(CPU, "eastus", 0.0)]
    provider = azure(cloud)

    prices = {o.instance_type: o.price.gpu_usd_per_hour for o in await provider.offers(OfferQuery()) if o.price.live}

    await provider.close()
    assert prices == {H100: 7.5}


async def test_an_own_price_wins_and_one_of_a_region_wins_over_that(cloud: AzureCloud) -> None:
    prices = {H100: 5.0, f"{H100}/westeurope": 6.0}
    provider = azure(cloud, regions="eastus,westeurope", prices=prices)

    offers = [o for o in await provider.offers(OfferQuery()) if (o.instance_type, o.capacity) == (H100, "on_demand")]

    await provider.close()
    assert {o.region: o.price.gpu_usd_per_hour for o in offers} == {"eastus": 5.0, "westeurope": 6.0}


async def test_without_the_list_of_prices_the_catalogue_stands_in(cloud: AzureCloud) -> None:
    provider = azure(cloud, prices_url="http://127.0.0.1:9")

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {(o.instance_type, o.price.live) for o in offers} == {(H100, False), (A100, False)}
    assert all(o.price.as_of for o in offers)


async def test_what_the_subscription_may_not_have_is_said_and_a_zone_that_lacks_it_leaves_the_others(
    cloud: AzureCloud,
) -> None:
    not_ours = {"type": "Location", "values": ["eastus"], "reasonCode": "NotAvailableForSubscription"}
    by_quota = {"type": "Location", "values": ["eastus"], "reasonCode": "QuotaId"}
    zone = {"type": "Zone", "values": ["eastus"], "reasonCode": "NotAvailableForSubscription"}
    cloud.skus["eastus"] = [
        sku(H100, "f", 40, 320, 1, restrictions=[not_ours]),
        sku(A100, "f", 96, 900, 8, restrictions=[by_quota]),
        sku(CPU, "f", 4, 16, restrictions=[zone]),
    ]
    provider = azure(cloud)

    found = {(await offer_of(provider, name)).instance_type: name for name in (H100, A100, CPU)}
    said = {name: (await offer_of(provider, name)).availability for name in found}

    await provider.close()
    assert said == {H100: Availability.NONE, A100: Availability.NO_QUOTA, CPU: Availability.UNKNOWN}


async def test_limits_of_family_region_and_spot_say_how_many_nodes_can_be_had(cloud: AzureCloud) -> None:
    cloud.usages["eastus"] = {
        "StandardNCadsH100v5Family": (100, 10),  # the vendor writes families as it likes
        "standardNDASv4_A100Family": (0, 0),
        "lowPriorityCores": (39, 0),
        "cores": (1000, 994),
    }
    provider = azure(cloud)

    said = {(o.instance_type, o.capacity): (o.availability, o.count) for o in await provider.offers(OfferQuery())}

    await provider.close()
    assert said == {
        (H100, "on_demand"): (Availability.NO_QUOTA, 0),
        (H100, "spot"): (Availability.NO_QUOTA, 0),
        (A100, "on_demand"): (Availability.NO_QUOTA, 0),
        (CPU, "on_demand"): (Availability.UNKNOWN, 1),
    }


async def test_types_for_other_chips_of_a_part_of_a_gpu_or_that_nobody_knows_are_left_out(cloud: AzureCloud) -> None:
    names = ("Standard_NV6ads_A10_v5", "Standard_NX1_secret_v9", "Standard_ND128isr_NDR_GB200_v6")
    cloud.skus["eastus"] = [
        *(sku(name, "f", 6, 55, 1) for name in names),
        sku(H100, "f", 40, 320, 1, capabilities={"vCPUs": "many"}),
        sku("Standard_D4ps_v5", "f", 4, 16, capabilities={"CpuArchitectureType": "Arm64"}),
        sku(CPU, "f", 4, 16),
    ]
    provider = azure(cloud, cpu_types=f"{CPU},Standard_D4ps_v5", prices=dict.fromkeys((*names, "Standard_D4ps_v5"), 1))

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {o.instance_type for o in offers} == {CPU}


async def test_a_region_that_fails_hides_no_other_and_all_that_fail_are_an_error(cloud: AzureCloud) -> None:
    del cloud.skus["westeurope"]
    one, none = azure(cloud, regions="eastus,westeurope"), azure(cloud, regions="westeurope")

    offers = await one.offers(OfferQuery())
    with pytest.raises(ProviderError, match="No registered resource provider") as failed:
        await none.offers(OfferQuery())

    await one.close()
    await none.close()
    assert {o.region for o in offers} == {"eastus"}
    assert failed.value.fault is Fault.INVALID


def test_every_region_lies_in_a_country_and_a_new_one_in_none() -> None:
    assert all(is_jurisdiction(country) and country for country in REGIONS.values())
    assert jurisdiction_of("polandcentral") == "PL"
    assert jurisdiction_of("marsnorth") == ""
