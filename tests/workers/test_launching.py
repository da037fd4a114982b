"""What a node is told of its own end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from shunter_agent.keeping.clock import boot_id
from shunter_providers.contract import Capabilities, SelfStop
from shunter_schemas.node_sync import Container
from shunter_store.sql.database import Database
from shunter_workers.launching import Origin, alone_s, launch_file
from shunter_workers.packing import pack_launch
from support.node_rows import intended
from support.store_rows import new_job

ORIGIN = Origin("abcdef", b"secret", "https://shunter.example", Path("/nowhere/service-url"))


@pytest.mark.parametrize(
    ("stops", "ends"), [(SelfStop.ENDS_BILLING, True), (SelfStop.STOPS_COMPUTE, True), (SelfStop.NONE, False)]
)
def test_nodes_end_their_machines_where_that_ends_or_lowers_the_bill(
    stops: SelfStop, ends: bool, database: Database
) -> None:
    node = intended(database, new_job(database).id)

    told = launch_file(ORIGIN, node, Capabilities(self_stop=stops))

    assert (told.ends_machine, told.home_boot_id) == (ends, boot_id())


def test_a_node_is_told_its_own_handle_in_the_command_that_ends_it(database: Database) -> None:
    node = replace(intended(database, new_job(database).id), handle="pod; rm -rf /")

    told = launch_file(ORIGIN, node, Capabilities(self_stop=SelfStop.STOPS_COMPUTE, power_off="cloudctl stop {handle}"))

    assert told.power_off == "cloudctl stop 'pod; rm -rf /'"


@pytest.mark.parametrize(
    ("stops", "lease_s", "alone"),
    [(SelfStop.ENDS_BILLING, 7200.0, 7800.0), (SelfStop.NONE, 7200.0, None), (SelfStop.ENDS_BILLING, None, None)],
)
def test_a_machine_without_an_agent_waits_for_one_as_long_as_for_its_service_and_its_boot(
    stops: SelfStop, lease_s: float | None, alone: float | None, database: Database
) -> None:
    node = replace(intended(database, new_job(database).id), lease_s=lease_s)

    assert alone_s(node, Capabilities(self_stop=stops, readiness_deadline_s=600.0)) == alone


IMAGE = "ghcr.io/acme/train:1"
MACHINES = Capabilities(runs_images=True, runs_images_by_docker=True)


def test_a_machine_is_told_which_image_it_has_to_run_and_whether_with_gpus(database: Database) -> None:
    node = replace(intended(database, new_job(database).id), slot_kind=None, offer={"gpus": 8})

    rented = launch_file(ORIGIN, node, MACHINES, image=IMAGE)
    own = launch_file(ORIGIN, replace(node, slot_kind="cpu"), replace(MACHINES, shared_hosts=True), image=IMAGE)

    assert rented.container == Container(image=IMAGE, gpus=True, may_install=True)
    assert own.container == Container(image=IMAGE, gpus=False, may_install=False)


@pytest.mark.parametrize(
    ("capabilities", "image"), [(MACHINES, None), (Capabilities(runs_images=True), IMAGE), (Capabilities(), IMAGE)]
)
def test_where_the_machine_has_no_image_to_run_its_file_does_not_even_name_one(
    capabilities: Capabilities, image: str | None, database: Database
) -> None:
    node = intended(database, new_job(database).id)

    packed = pack_launch(launch_file(ORIGIN, node, capabilities, image=image))

    assert "container" not in json.loads(packed.files["launch.json"])
