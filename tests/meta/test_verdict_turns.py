"""The verdict turns: wrong code in a copy of the checkout, put before the real command in a process of its own.

A few mutants stand for all: ``relax-verify mutants`` tries every one.
"""

from __future__ import annotations

import pytest

from verification.mutants import MUTANTS, Mutant
from verification.mutants.campaign import workspaces
from verification.mutants.trial import try_out
from verification.revisions.checkout import Checkout

# The judges that must differ, and no others. Goldens are left out: not every platform has them.
NOTICED_BY = {
    "wrong-objective-sapo": {"bits/frozen", "rounding"},
    "group-epsilon-halved": {"bits/frozen", "rounding"},
    "group-std-n": {"bits/frozen", "rounding"},
    "weights-dropped": {"rounding", "invariance"},
    "no-token-swallowed": {"bits/frozen", "contract"},
}


def named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


@pytest.fixture(scope="module")
def copy():
    """A copy of the checkout, and the children that run in it."""
    with workspaces(Checkout.here().root) as (copies, children):
        yield copies[0], children


def test_the_unmutated_copy_is_equivalent(copy):
    """Under the same filters and as it is, the copy has VERDICT equivalent and exit 0: the mutants are what differs."""
    checks = sorted({pattern for name in NOTICED_BY for pattern in named(name).checks})
    trial = try_out(*copy, checks=checks)
    assert (trial.exit_code, trial.verdict, trial.judges, trial.problem) == (0, "VERDICT equivalent", {}, "")
    assert trial.cases >= len(checks)


@pytest.mark.parametrize("name", NOTICED_BY)
def test_wrong_code_turns_the_verdict(copy, name):
    """A mutant gives VERDICT different, exit 1, and the differences come from the judges that ought to notice it."""
    workspace, children = copy
    mutant = named(name)
    with workspace.mutated(mutant):
        trial = try_out(workspace, children, checks=mutant.checks)
    assert (NOTICED_BY[name], "") == (set(trial.judges) - {"bits/golden"}, trial.problem)
    assert (1, f"VERDICT different ({sum(trial.judges.values())})") == (trial.exit_code, trial.verdict)
