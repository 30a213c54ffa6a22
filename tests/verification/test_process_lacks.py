"""Process subjects of older code: what it lacks is not there, what it breaks is an error."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import numpy as np
import pytest

import relax
from tests.verification.player import PLAYER, REDUCERS, loss, play, source_of
from verification.cases import corpus, find
from verification.cases.case import Case
from verification.judges.bits import judge_bits
from verification.revisions.checkout import Checkout, CheckoutError
from verification.revisions.source import Source, of_revision
from verification.subjects.live import live_subject
from verification.subjects.other_revision import imported
from verification.subjects.process import ProcessSubject, SubjectFailed

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Checkout.here().root


def test_what_a_source_lacks_is_not_there(tmp_path):
    """A module, an attribute, an algorithm, a keyword with a value: None. A keyword without a value is left out."""
    files = {
        "algorithms/spec.py": "def list_algorithm_names(): return ('grpo',)\n",
        "algorithms/advantages.py": "",
        "algorithms/policy.py": "def policy_objective(args, **keywords): return args.advantage_estimator\n",
        REDUCERS: "def reduce_loss(args, *, values): return 2 * values[0].sum()\n",
    }
    cases = [
        play(10),
        play(10, "with-mask", loss_masks=[np.ones(1, dtype=np.float32)]),
        Case("loss.reduce/gdpo/unlisted", "loss.reduce", "gdpo", play(10).inputs),
        Case("loss.reduce/invented/never-listed", "loss.reduce", "invented", play(10).inputs),
        find("kl.estimate/grpo/k1-coef0.1"),
        next(case for case in corpus() if case.stage == "advantage.normalize"),
    ]
    with ProcessSubject(source_of(tmp_path / "old", files)) as subject:
        outcomes = list(subject.run_all(cases).values())
    assert [one is None for one in outcomes] == [False, True, True, False, True, True]
    assert loss(outcomes[0]) == 20


def test_not_implemented_is_a_failure_of_a_revision(player):
    """The code is there and refuses to run: that is no absence, as it would be none in the working tree."""
    outcome = player.run(play(6))
    assert outcome is not None
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.message) == ("NotImplementedError", "not yet")


def test_code_that_does_not_import_is_an_error(tmp_path):
    """The error names the source and the reason, and nothing of it runs."""
    subject = ProcessSubject(source_of(tmp_path / "broken", {REDUCERS: f"{PLAYER}\nimport no_such_library\n"}))
    with pytest.raises(SubjectFailed, match=r"checkout .*/broken broke: .*No module named 'no_such_library'"):
        subject.started()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import no_such_library", ModuleNotFoundError),
        ("import relax.trial.forgotten", ModuleNotFoundError),
        ("import relax.tri", ModuleNotFoundError),
        ("from relax.trial import forgotten", ImportError),
        ("def broken(:", SyntaxError),
        ("call = None", None),
        ("", None),
    ],
)
def test_only_the_very_module_or_attribute_may_be_missing(tmp_path, monkeypatch, text, error):
    """What a module needs and does not find is its fault, whatever it is called."""
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "__init__.py").touch()
    (tmp_path / "trial" / "there.py").write_text(text)
    monkeypatch.setattr(relax, "__path__", [*relax.__path__, str(tmp_path)])
    try:
        with contextlib.nullcontext() if error is None else pytest.raises(error):
            assert imported("relax.trial.there", "call") is None
        assert imported("relax.trial.gone", "call") is None
        assert imported("relax.nowhere.gone", "call") is None
    finally:
        for name in [name for name in sys.modules if name.startswith("relax.trial")]:
            del sys.modules[name]


def test_a_source_without_any_call_is_an_error(tmp_path):
    """Nothing of it can be judged, which must not read as: nothing differs."""
    with pytest.raises(SubjectFailed, match="has none of the public calls"):
        ProcessSubject(source_of(tmp_path / "empty", {"other.py": ""})).started()


def before_log_probs() -> Source:
    """The commit before log-probs and entropy were there."""
    found = subprocess.run(
        ["git", "-C", ROOT, "log", "--diff-filter=A", "--format=%H", "--", "relax/algorithms/formulas/log_probs.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        return of_revision(f"{(found.stdout.split() or ['none'])[-1]}~1", Checkout(ROOT))
    except CheckoutError as error:
        pytest.skip(f"the history of this project is not here: {error}")


def test_an_old_revision_of_this_project_lacks_the_newer_stage():
    """Before log-probs and entropy were there, their cases are not there, and the others have the bits of today."""
    lacking = [case for case in corpus() if case.stage == "logprob.entropy"][:3]
    known = [find("kl.estimate/grpo/k1-coef0.1"), *(case for case in corpus() if case.stage == "policy.loss")][:3]
    with ProcessSubject(before_log_probs()) as subject:
        assert "log_probs_and_entropy" not in subject.provenance.calls
        outcomes = subject.run_all([*lacking, *known])
    assert [outcomes[case.id] for case in lacking] == [None] * 3
    for case in known:
        outcome = outcomes[case.id]
        assert outcome is not None
        assert all(finding.agrees for finding in judge_bits(case, outcome, live_subject().run(case), "live")), case.id
