"""Names of variables that the agent (standard library only) has to write down again: each stays equal to the other."""

from __future__ import annotations

from shunter_agent.keeping import launchfile
from shunter_agent.launching.ranks import TORCHRUN
from shunter_providers import contract
from shunter_schemas.checks.references import RESERVED_VARIABLES


def test_what_the_agent_sets_for_a_rank_is_what_a_document_may_not_set() -> None:
    assert TORCHRUN | {"CUDA_VISIBLE_DEVICES"} == RESERVED_VARIABLES


def test_a_plugin_tells_a_node_its_handle_where_the_agent_looks_for_it() -> None:
    assert launchfile.HANDLE_VARIABLE == contract.HANDLE_VARIABLE
