"""`golden verify`: goldens that their baseline gives again, and each way in which they can fail to be that."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from tests.verification.test_golden_commands import CASES, REDUCE, SIGNAL, WRONG, Scripted, git, outcomes
from verification.goldens import provenance
from verification.goldens.changes import accept
from verification.goldens.guard import WritePermit, permit
from verification.goldens.platform import platform_key
from verification.goldens.staging import record, staged_recording
from verification.goldens.store import GoldenStore
from verification.goldens.twice import in_process
from verification.goldens.verify import (
    DIFFERS,
    ELSEWHERE,
    MISSING,
    NO_CASE,
    NO_OUTCOME,
    REPRODUCED,
    UNATTRIBUTED,
    WRONG_PLATFORM,
    WRONG_TREE,
    Verification,
    verify,
)
from verification.revisions.checkout import Checkout, CheckoutError
from verification.subjects.outcome import Outcome


@pytest.fixture
def granted(tmp_path: Path) -> WritePermit:
    """A checkout of one commit with the goldens of three cases."""
    (tmp_path / "relax").mkdir()
    (tmp_path / "relax" / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    checkout = Checkout(tmp_path)
    allowed = permit(checkout, "HEAD", environment={})
    accept(allowed, record(allowed, CASES, in_process(Scripted(outcomes()))), staged_recording(checkout), ())
    return allowed


def verified(
    granted: WritePermit, given=None, cases=CASES, key: str | None = None, baseline: str | None = None
) -> Verification:
    """What `verify` finds where every baseline gives ``given``."""
    subject = Scripted(outcomes() if given is None else given)
    checkout = granted.checkout
    return verify(
        checkout,
        GoldenStore(checkout.golden),
        cases,
        key or platform_key(),
        lambda commit, asked: {case.id: subject.run(case) for case in asked},
        baseline=baseline,
    )


def found(verification: Verification) -> dict[str, str]:
    return {one.case: one.found for one in verification.checked}


def test_untouched_goldens_are_reproduced(granted):
    """Every golden whose bytes come out again counts, and the verdict holds."""
    verification = verified(granted)
    assert dict.fromkeys((REDUCE.id, SIGNAL.id, WRONG.id), REPRODUCED) == found(verification)
    assert (verification.exit_code, verification.verdict) == (0, "VERDICT equivalent")


def test_one_ulp_is_found_with_its_distance(granted):
    """A baseline that gives one ulp more than was recorded is different, and the distance is told."""
    verification = verified(granted, outcomes(0.75 + 2**-24))
    (wrong,) = verification.wrong
    assert (REDUCE.id, DIFFERS, 1.0) == (wrong.case, wrong.found, wrong.ulps)
    assert (verification.exit_code, verification.verdict) == (1, "VERDICT different (1)")


def test_one_byte_of_a_comment_is_found(granted):
    """Reproducing means every byte, those of comments too: the golden differs, and its file and line are told."""
    path = GoldenStore(granted.checkout.golden).path(SIGNAL.id, "any")
    path.write_bytes(path.read_bytes().replace(b"golden accept", b"golden acquit"))
    (wrong,) = verified(granted).wrong
    assert (SIGNAL.id, DIFFERS) == (wrong.case, wrong.found)
    assert "two.txt:1: " in wrong.detail


def test_a_golden_that_no_recording_names_is_found(granted):
    """A file that was put there by hand is told from one that was recorded."""
    store = GoldenStore(granted.checkout.golden)
    golden = store.read(REDUCE.id, platform_key())
    store.write(dataclasses.replace(golden, case="loss.reduce/grpo/three"), granted)
    assert found(verified(granted))["loss.reduce/grpo/three"] == UNATTRIBUTED


def test_a_recorded_golden_that_is_gone_is_found(granted):
    """A deleted file is missing, not passed over."""
    GoldenStore(granted.checkout.golden).path(SIGNAL.id, "any").unlink()
    assert found(verified(granted))[SIGNAL.id] == MISSING


def test_a_golden_of_two_recordings_is_refused(granted):
    """A name in two recordings has no baseline to be held to."""
    leaf = GoldenStore(granted.checkout.golden).path(SIGNAL.id, "any").parent
    content = provenance.read(leaf)
    ((recording, names),) = content.items()
    content[dataclasses.replace(recording, baseline="0" * 40)] = set(names)
    (leaf / provenance.FILE).write_text(provenance.render(content))
    with pytest.raises(provenance.ProvenanceError, match="listed twice"):
        verified(granted)


def test_another_tree_than_the_recorded_one_is_found(granted):
    """A baseline whose relax/ is not what the recording says proves nothing."""
    for path in granted.checkout.golden.rglob(provenance.FILE):
        tree = granted.checkout.tree("relax")
        path.write_text(path.read_text().replace(tree, "f" * len(tree)))
    assert {WRONG_TREE} == set(found(verified(granted)).values())


def test_cases_and_calls_that_are_gone_are_found(granted):
    """A golden without a case, and one whose baseline lacks the call, are each told."""
    assert found(verified(granted, cases=(REDUCE, WRONG)))[SIGNAL.id] == NO_CASE
    assert found(verified(granted, {**outcomes(), SIGNAL.id: None}))[SIGNAL.id] == NO_OUTCOME


def test_goldens_of_another_platform_are_counted_apart(granted):
    """Where the platform cannot give them, they are neither reproduced nor wrong; nothing at all is no verdict."""
    verification = verified(granted, key="cpu-torch2.13.0-neon-00000000")
    assert {REDUCE.id: ELSEWHERE, SIGNAL.id: REPRODUCED, WRONG.id: REPRODUCED} == found(verification)
    assert verification.exit_code == 0
    assert Verification(()).exit_code == 2


def test_provenance_is_held_to_account_on_every_platform(granted):
    """Goldens that cannot be recorded here still need the tree that is told of them, and the platform's own folder."""
    store, key = GoldenStore(granted.checkout.golden), "cpu-torch2.13.0-neon-00000000"
    leaf = store.path(REDUCE.id, platform_key()).parent
    moved = leaf.rename(leaf.with_name(key)) / "two.txt"
    moved.write_text(moved.read_text().replace(platform_key(), key))
    assert found(verified(granted))[REDUCE.id] == WRONG_PLATFORM
    path = leaf.with_name(key) / provenance.FILE
    path.write_text(path.read_text().replace(platform_key(), key))
    assert found(verified(granted))[REDUCE.id] == ELSEWHERE
    path.write_text(path.read_text().replace(granted.checkout.tree("relax"), "f" * 40))
    assert found(verified(granted))[REDUCE.id] == WRONG_TREE


def test_a_baseline_must_be_a_full_sha(granted):
    """A name that moves, or a short one, is no baseline that anybody could hold a golden to."""
    for path in granted.checkout.golden.rglob(provenance.FILE):
        path.write_text(path.read_text().replace(f'"baseline": "{granted.baseline}"', '"baseline": "HEAD"'))
    assert {WRONG_TREE} == set(found(verified(granted)).values())


def test_one_baseline_alone_can_be_verified(granted):
    """Goldens of other recordings are left out then; of an unknown baseline there is nothing, hence no verdict."""
    checkout = granted.checkout
    leaf = GoldenStore(checkout.golden).path(SIGNAL.id, "any").parent
    ((recording, names),) = provenance.read(leaf).items()
    (leaf / provenance.FILE).write_text(provenance.render({dataclasses.replace(recording, baseline="1" * 40): names}))
    assert {REDUCE.id, WRONG.id} == set(found(verified(granted, baseline=granted.baseline)))
    assert verified(granted, baseline="2" * 40).exit_code == 2


def test_a_baseline_that_the_clone_lacks_is_an_error_with_the_remedy(granted):
    """A recording of a commit that is not here names it and says what to do."""
    for path in granted.checkout.golden.rglob(provenance.FILE):
        path.write_text(path.read_text().replace(granted.baseline, "1" * 40))
    with pytest.raises(CheckoutError, match=r"no revision '1{40}' here.*fetch it"):
        verified(granted)


def test_another_baseline_is_recorded_with_its_own_tree(granted):
    """The provenance names the tree of the revision that was recorded, not of the one that is checked out."""
    checkout = granted.checkout
    (checkout.root / "relax" / "__init__.py").write_text("NEW = 1\n")
    (checkout.root / ".gitignore").write_text("golden\n.golden-staging\n")
    git(checkout.root, "add", ".")
    git(checkout.root, "commit", "-qm", "two")
    older = permit(checkout, "HEAD~1", environment={})
    given = {REDUCE.id: Outcome(arrays={"loss": torch.zeros(())}), SIGNAL.id: None, WRONG.id: None}
    record(older, CASES, in_process(Scripted(given)))
    recording = staged_recording(checkout)
    assert (checkout.commit("HEAD~1"), checkout.tree("relax", "HEAD~1")) == (recording.baseline, recording.relax_tree)
    assert checkout.tree("relax") != recording.relax_tree
