"""Every fault that changes values is found by `check`, or stops the program, and is named at the right place."""

from __future__ import annotations

import pytest

from tests.faults_check.outcomes import Outcome, check_faults

# all faults are checked for the first test; in every run lint looks for them (tests/faults)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    return list(check_faults(tmp_path_factory.mktemp("faults")))


def test_every_fault_that_changes_values_is_found(outcomes: list[Outcome]) -> None:
    assert [outcome.name for outcome in outcomes if not outcome.findings] == []
    assert len(outcomes) > 20


def test_the_right_place_is_named_first_for_nine_of_ten(outcomes: list[Outcome]) -> None:
    wrong = {outcome.name: [f.message for f in outcome.findings] for outcome in outcomes if outcome.rank != 1}
    assert len(wrong) * 10 <= len(outcomes), wrong


def test_a_right_buffer_that_is_read_at_other_steps_is_reported(outcomes: list[Outcome]) -> None:
    for name in ("ambient-wrong-order", "ambient-wrong-order-square"):
        (finding,) = next(outcome.findings for outcome in outcomes if outcome.name == name)
        assert "at step (0, 1) it gets what belongs to (1, 0)" in finding.message
        assert finding.number == 1, "the kernel is the one that reads"
    others = [outcome for outcome in outcomes if not outcome.name.startswith("ambient-wrong-order")]
    assert [outcome.name for outcome in others if "gets what belongs to" in str(outcome.findings)] == []


def test_a_program_that_a_fault_stops_names_its_kernel(outcomes: list[Outcome]) -> None:
    stopped = [outcome for outcome in outcomes if outcome.stopped]
    assert stopped
    for outcome in stopped:
        (finding,) = outcome.findings
        # what fails while it is scheduled has no kernel
        if outcome.name != "first-consumer-wins":
            assert finding.kernel is not None, outcome.name
