"""The choice among offers, and the words for those that were not taken."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from shunter_planner import Block, Candidate, Facts, History, Plan, Refusal, Unavailable, plan
from shunter_planner.refused import refused_blocks
from shunter_planner.values import as_json, plan_from_json
from shunter_providers.contract import Availability, Offer, Price, Scope
from shunter_schemas.job import JobSpec, load_job
from shunter_schemas.states import Reason

H100 = Offer(
    instance_type="8xH100",
    region="eu-1",
    jurisdiction="DE",
    price=Price(gpu_usd_per_hour=16.0),
    gpu_model="H100",
    gpus=8,
    gpu_memory_gib=80.0,
    cpus=128,
    memory_gib=1024.0,
    disk_gib=2000.0,
    availability=Availability.AVAILABLE,
)
LOCAL_CPU = Offer(
    instance_type="cpu",
    region="local",
    jurisdiction="",
    price=Price(billed=False),
    cpus=8,
    memory_gib=32.0,
    cpu_slots=8,
)
LOCAL_GPU = replace(LOCAL_CPU, instance_type="gpu", cpu_slots=0, gpus=4, gpu_model="A100", gpu_memory_gib=80.0)
FACTS = Facts(instances=("alpha", "beta", "local"))
TOO_DEAR = "32.00 USD an hour, at most 20.00 allowed (limits.max_usd_per_hour)"
UNKNOWN_NETWORK = "nothing is known of the network between nodes, rdma needed (resources.interconnect)"


def document(resources: dict[str, Any], **parts: Any) -> JobSpec:
    return load_job(
        {
            "version": "1",
            "name": "job",
            "source": {"kind": "git", "url": "https://example.org/x.git"},
            "workload": {"kind": "script", "entrypoint": "train.py"},
            "resources": resources,
            **parts,
        }
    )


def on(instance: str, offer: Offer = H100, **changes: Any) -> Candidate:
    shared = not offer.price.billed
    return Candidate(instance, replace(offer, **changes), shared_host=shared)


def planned(spec: JobSpec, *offers: Candidate, facts: Facts = FACTS) -> Plan:
    answer = plan(spec, offers, facts, History())
    assert isinstance(answer, Plan), answer
    return answer


def refused(spec: JobSpec, *offers: Candidate, facts: Facts = FACTS) -> Refusal:
    answer = plan(spec, offers, facts, History())
    assert isinstance(answer, Refusal), answer
    return answer


def test_the_cheapest_offer_wins() -> None:
    dear, cheap = on("alpha"), on("beta", price=Price(gpu_usd_per_hour=12.0))

    answer = planned(document({"gpus": 8}), dear, cheap)

    assert (answer.instance, answer.num_nodes, answer.ranks_per_node, answer.usd_per_hour) == ("beta", 1, 8, 12.0)


def test_at_the_same_price_the_offer_with_more_free_capacity_wins() -> None:
    crowded, roomy = on("alpha", count=1), on("beta", count=9)

    assert planned(document({"gpus": 8}), crowded, roomy).instance == "beta"


def test_the_choice_does_not_depend_on_the_order_of_the_offers() -> None:
    offers = [on("alpha"), on("beta"), on("local", LOCAL_GPU, gpus=8)]

    forwards = planned(document({"gpus": 8}), *offers)
    backwards = planned(document({"gpus": 8}), *reversed(offers))

    assert (forwards.instance, forwards.offer) == (backwards.instance, backwards.offer)


def test_own_hardware_goes_before_hardware_that_bills() -> None:
    assert planned(document({"gpus": 4}), on("alpha", gpus=4), on("local", LOCAL_GPU)).instance == "local"


def test_spot_goes_first_when_both_kinds_of_capacity_will_do() -> None:
    spot = on("alpha", capacity="spot", price=Price(gpu_usd_per_hour=99.0))

    answer = planned(document({"gpus": 8, "capacity": "spot_then_on_demand"}), on("beta"), spot)

    assert answer.instance == "alpha"


def test_ranks_on_cpus_are_laid_out_over_the_hosts_of_a_pool() -> None:
    pool = {"count": 2, "host_stride": 1024, "free_on_hosts": (8, 3), "host_names": ("one", "two")}

    fits = planned(document({"nodes": 2, "cpu_processes": 3}), on("local", LOCAL_CPU, **pool))
    waits = refused(document({"nodes": 2, "cpu_processes": 4}), on("local", LOCAL_CPU, **pool))
    never = refused(document({"nodes": 2, "cpu_processes": 3}), on("local", LOCAL_CPU))

    assert (fits.num_nodes, fits.ranks_per_node, fits.world_size, fits.slot_kind) == (2, 3, 6, "cpu")
    assert (waits.final, waits.rejected[0].detail) == (
        False,
        "1 of 2 hosts have 4 free CPU slots, 2 such hosts are needed",
    )
    assert never.final
    assert "2 nodes needed, and this is one machine" in never.rejected[0].detail


@pytest.mark.parametrize(
    ("resources", "nodes", "per_node"),
    [
        ({"gpus": 16}, 2, 8),
        ({"gpus": 4}, 1, 4),
        ({"nodes": 3, "gpus_per_node": 2}, 3, 2),
        ({"gpus": 16, "nodes": 2}, 2, 8),
        ({"gpus": 8, "gpus_per_node": 4}, 2, 4),
    ],
)
def test_a_gang_is_laid_out_as_the_document_says_or_as_the_nodes_allow(
    resources: dict[str, Any], nodes: int, per_node: int
) -> None:
    answer = planned(document(resources), on("alpha"))

    assert (answer.num_nodes, answer.ranks_per_node, answer.world_size) == (nodes, per_node, nodes * per_node)


def test_cpu_ranks_share_the_machines_cores() -> None:
    answer = planned(document({"cpu_processes": 2}), on("local", LOCAL_CPU, cpu_slots=4))

    assert (answer.slot_kind, answer.shared_host, answer.cpu_threads_per_rank) == ("cpu", True, 2)


@pytest.mark.parametrize(
    ("resources", "parts", "reason", "detail"),
    [
        ({"gpus": 8}, {"placement": {"regions": ["us-1"]}}, "region", "region eu-1 is not one of us-1"),
        ({"gpus": 8}, {"placement": {"jurisdictions": ["US"]}}, "jurisdiction", "jurisdiction DE is not in US"),
        (
            {"gpus": 8},
            {"placement": {"providers": ["beta"]}},
            "provider",
            "not one of the placement's providers (beta)",
        ),
        ({"cpu_processes": 2}, {}, "device", "takes no CPU ranks"),
        ({"gpus": 8, "gpu_models": ["A100"]}, {}, "gpu_model", "H100 of 80 GiB is not one of A100"),
        ({"gpus": 8, "min_gpu_memory_gib": 96}, {}, "gpu_memory", "80 GiB of memory a GPU, 96 needed"),
        ({"gpus": 8, "min_cpus_per_gpu": 32}, {}, "cpus", "16 CPUs a GPU, 32 needed"),
        ({"gpus": 8, "min_memory_gib_per_gpu": 256}, {}, "memory", "128 GiB a GPU, 256 needed"),
        ({"gpus": 8, "disk_gib": 4000}, {}, "disk", "2000 GiB of disk, 4000 needed"),
        ({"gpus": 8, "capacity": "spot"}, {}, "capacity", "capacity is on_demand, not spot"),
        ({"nodes": 1, "gpus_per_node": 16}, {}, "too_small", "16 GPUs a node needed, a node has 8"),
        ({"gpus": 12}, {}, "too_small", "12 GPUs do not divide over nodes of 8"),
        ({"gpus": 16, "interconnect": "rdma"}, {}, "interconnect", UNKNOWN_NETWORK),
        ({"gpus": 16}, {"limits": {"max_usd_per_hour": 20}}, "price", TOO_DEAR),
    ],
)
def test_an_offer_of_the_wrong_kind_is_rejected_for_ever_with_the_numbers(
    resources: dict[str, Any], parts: dict[str, Any], reason: str, detail: str
) -> None:
    answer = refused(document(resources, **parts), on("alpha"))

    assert answer.final
    assert [(entry.instance, entry.instance_type, entry.reason, entry.detail) for entry in answer.rejected] == [
        ("alpha", "8xH100", reason, detail)
    ]
    assert detail in answer.detail


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"availability": Availability.NONE}, "the provider has none of it at the moment"),
        (
            {"availability": Availability.NO_QUOTA},
            "the account's quota for it is used up: ask the provider for a higher one",
        ),
        ({"count": 1}, "1 nodes to be had, 2 needed"),
    ],
)
def test_what_is_merely_taken_is_worth_waiting_for(changes: dict[str, Any], detail: str) -> None:
    answer = refused(document({"gpus": 16}), on("alpha", **changes))

    assert not answer.final
    assert answer.rejected[0].detail == detail


def test_taken_slots_are_worth_waiting_for_and_too_few_slots_are_not() -> None:
    taken = refused(document({"cpu_processes": 6}), on("local", LOCAL_CPU, free=5))
    too_few = refused(document({"cpu_processes": 9}), on("local", LOCAL_CPU, free=5))

    assert (taken.final, taken.rejected[0].reason) == (False, "slots_taken")
    assert taken.rejected[0].detail == "5 of 8 CPU slots are free, 6 needed"
    assert (too_few.final, too_few.reason) == (True, Reason.DOES_NOT_FIT)
    assert too_few.rejected[0].detail == "9 CPU ranks a node needed, a node has 8"


def test_a_block_covers_what_its_scope_reaches() -> None:
    block = Block("alpha", Scope.REGION, Reason.NO_CAPACITY, "no H100 in eu-1 just now", region="eu-1")
    facts = replace(FACTS, blocks=(block,))

    elsewhere = planned(document({"gpus": 8}), on("alpha"), on("alpha", region="us-1"), facts=facts)
    nowhere = refused(document({"gpus": 8}), on("alpha"), facts=facts)

    assert elsewhere.offer.region == "us-1"
    assert (nowhere.final, nowhere.rejected[0].detail) == (False, "no H100 in eu-1 just now")


def test_a_job_that_only_an_operator_can_help_does_not_wait() -> None:
    block = Block("alpha", Scope.ACCOUNT, Reason.PROVIDER_AUTH, "the key was revoked")

    answer = refused(document({"gpus": 8}), on("alpha"), facts=replace(FACTS, blocks=(block,)))

    assert (answer.final, answer.reason, answer.detail) == (True, Reason.PROVIDER_AUTH, "the key was revoked")


@pytest.mark.parametrize(
    "beside",
    [
        Block("beta", Scope.ACCOUNT, Reason.PROVIDER_PAYMENT, "402: add money"),
        *refused_blocks(
            {"beta": {"at": "1", "until": "2", "fault": "payment", "scope": "account", "detail": "402: add money"}}
        ),
    ],
    ids=["its own", "another job's"],
)
@pytest.mark.parametrize("offered", [("alpha",), ("alpha", "beta")], ids=["not to be used", "to be used"])
def test_a_job_that_room_may_help_waits_whatever_another_account_lacks(beside: Block, offered: tuple[str, ...]) -> None:
    no_room = Block("alpha", Scope.ACCOUNT, Reason.NO_CAPACITY, "none just now")
    facts = replace(FACTS, blocks=(no_room, beside))

    answer = refused(document({"gpus": 8}), *map(on, offered), facts=facts)

    assert (answer.final, answer.reason) == (False, Reason.NO_CAPACITY)


def test_a_job_waits_for_an_account_that_another_job_found_without_money_and_goes_elsewhere_if_it_can() -> None:
    told = {"at": "12:00", "until": "12:30", "fault": "payment", "scope": "account", "detail": "402: add money"}
    facts = replace(FACTS, blocks=refused_blocks({"alpha": told, "beta": {**told, "fault": "quota"}}))

    elsewhere = planned(document({"gpus": 8}), on("alpha"), on("beta", price=Price(gpu_usd_per_hour=30.0)), facts=facts)
    nowhere = refused(document({"gpus": 8}), on("alpha"), facts=facts)

    assert elsewhere.instance == "beta"
    assert (nowhere.final, [entry.reason for entry in nowhere.rejected]) == (False, ["account_refused"])
    assert "402: add money" in nowhere.detail
    assert "nothing is asked of alpha until 12:30; sooner by: shunter providers --retry alpha" in nowhere.detail


def test_a_refusal_of_one_kind_of_node_leaves_the_others() -> None:
    told = {"at": "12:00", "until": "12:30", "fault": "auth", "scope": "region", "detail": "403", "region": "eu-1"}
    facts = replace(FACTS, blocks=refused_blocks({"alpha": told}))

    answer = planned(document({"gpus": 8}), on("alpha"), on("alpha", region="us-1"), facts=facts)

    assert answer.offer.region == "us-1"


def test_an_image_goes_only_onto_nodes_that_run_images() -> None:
    wish = document({"gpus": 8}, environment={"image": "ghcr.io/acme/train:1"})
    machines = replace(on("alpha"), runs_images=False)
    containers = on("beta", price=Price(gpu_usd_per_hour=30.0))

    chosen, nowhere = planned(wish, machines, containers), refused(wish, machines)

    assert chosen.instance == "beta"
    assert (nowhere.final, nowhere.rejected[0].reason) == (True, "image")
    assert "its nodes run no container image (environment.image)" in nowhere.detail
    assert planned(document({"gpus": 8}), machines).instance == "alpha"


@pytest.mark.parametrize(
    ("wanted", "offered", "taken"),
    [
        ("any", "any", True),
        ("any", "none", False),
        ("ethernet", "any", False),
        ("ethernet", "ethernet", True),
        ("ethernet", "rdma", True),
        ("rdma", "ethernet", False),
        ("rdma", "rdma", True),
    ],
)
def test_several_nodes_need_at_least_the_network_that_the_document_asks_for(
    wanted: str, offered: str, taken: bool
) -> None:
    gang, alone = ({"gpus": gpus, "interconnect": wanted} for gpus in (16, 8))

    answer = plan(document(gang), [on("alpha", interconnect=offered)], FACTS, History())

    assert isinstance(answer, Plan) is taken
    assert isinstance(answer, Plan) or answer.rejected[0].reason == "interconnect"
    assert planned(document(alone), on("alpha", interconnect=offered))


def test_of_offers_that_cost_alike_a_gang_takes_the_best_network_and_one_node_does_not_care() -> None:
    offers = [
        on("alpha", interconnect="any", count=9),
        on("beta", interconnect="ethernet"),
        on("delta", interconnect="ethernet", fabric="pod-7"),
    ]

    gang, alone = planned(document({"gpus": 16}), *offers), planned(document({"gpus": 8}), *offers)

    assert (gang.instance, gang.offer.fabric, alone.instance) == ("delta", "pod-7", "alpha")


def test_an_instance_out_of_reach_is_worth_waiting_for() -> None:
    facts = replace(FACTS, unavailable=(Unavailable("beta", "time-out after 10 s"),))

    answer = refused(document({"gpus": 8, "gpu_models": ["A100"]}), on("alpha"), facts=facts)

    assert not answer.final
    assert answer.detail == "beta: time-out after 10 s"


def test_a_provider_that_nobody_configured_is_an_invalid_wish() -> None:
    answer = refused(document({"gpus": 8}, placement={"providers": ["acme"]}), on("alpha"))

    assert (answer.reason, answer.final) == (Reason.INVALID, True)
    assert answer.detail == "no provider named acme is configured (there are: alpha, beta, local)"


def test_no_offer_at_all_is_said_in_words() -> None:
    answer = refused(document({"gpus": 8}))

    assert (answer.reason, answer.final) == (Reason.NO_CAPACITY, True)
    assert answer.detail == "no offer takes this job: no provider offers anything"


def test_a_batch_is_pinned_to_its_parts() -> None:
    spec = document(
        {"cpu_processes": 2},
        source=None,
        strategy={"kind": "ddp"},
        workload={
            "kind": "training",
            "model": {"kind": "transformer", "layers": 2, "hidden": 32, "heads": 2, "vocab": 256, "context": 64},
            "data": {"kind": "sample", "name": "python-docs", "tokenizer": "bytes", "sequence_length": 64},
            "batch": {"global_size": 32, "micro_size": 4},
            "duration": {"steps": 10},
        },
    )

    answer = planned(spec, on("local", LOCAL_CPU))

    assert (answer.micro_size, answer.accumulation) == (4, 4)
    assert answer.strategy["kind"] == "ddp"


def test_a_plan_survives_being_stored_as_json() -> None:
    answer = planned(document({"gpus": 16}), on("alpha"), on("local", LOCAL_GPU))

    stored = json.loads(json.dumps(as_json(answer)))

    assert plan_from_json(stored) == answer
    assert plan_from_json({**stored, "added_later": 1}) == answer
