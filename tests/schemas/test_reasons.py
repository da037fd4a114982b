import pytest
from shunter_schemas.reasons import MEANINGS, meaning
from shunter_schemas.states import Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_and_all_but_success_a_way_out(reason: Reason) -> None:
    words = MEANINGS[reason]

    assert words.meaning
    assert bool(words.way_out) == (reason is not Reason.DONE)


def test_a_reason_of_a_newer_service_stands_for_itself() -> None:
    assert meaning("struck_by_lightning") == ("struck by lightning", "")
