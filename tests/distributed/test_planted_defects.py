"""Six kinds of defect that only ranks can show, planted in a copy of the checkout: each turns the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from verification.mutants import MUTANTS
from verification.mutants.campaign import judge_mutant, workspaces
from verification.mutants.children import Children
from verification.mutants.trial import try_out
from verification.mutants.workspace import Workspace
from verification.revisions.checkout import Checkout

pytestmark = pytest.mark.usefixtures("megatron")

# A mutant of each kind, and what it must be noticed against.
DEFECTS = {
    "tokens-normalized-locally": "one rank",
    "segments-merged-over-ranks": "one rank",
    "raise-before-the-first-collective": "contract",
    "mask-not-cut": "one rank",
    "unpadded-offsets": "every rank",
    "reward-on-two-ranks": "one rank",
}
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.fixture(scope="module")
def copy() -> Iterator[tuple[Workspace, Children]]:
    """A copy of the checkout in which code may be made wrong."""
    with ExitStack() as stack:
        (workspace, *_), children = stack.enter_context(workspaces(Checkout.here().root))
        yield workspace, children


def test_the_code_as_it_stands_holds(copy: tuple[Workspace, Children]) -> None:
    """Without a defect the same rank cases are equivalent, in the same copy."""
    patterns = sorted({pattern for name in DEFECTS for pattern in BY_NAME[name].ranks})
    trial = try_out(*copy, ranks=patterns)
    assert (trial.problem, trial.judges, trial.verdict) == ("", {}, "VERDICT equivalent")
    assert trial.cases >= 50


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_turns_the_verdict(copy: tuple[Workspace, Children], name: str) -> None:
    """The defect is noticed, by the comparison that is there for it."""
    result = judge_mutant(BY_NAME[name], *copy)
    assert (result.status, result.detail) == ("killed", "")
    assert f"ranks/{DEFECTS[name]}" in result.judges, result.judges
