"""The agent (standard library only) and the document's checks each list the variables that belong to the launcher."""

from __future__ import annotations

from shunter_agent.ranks import TORCHRUN
from shunter_schemas.checks.references import RESERVED_VARIABLES


def test_what_the_agent_sets_for_a_rank_is_what_a_document_may_not_set() -> None:
    assert TORCHRUN | {"CUDA_VISIBLE_DEVICES"} == RESERVED_VARIABLES
