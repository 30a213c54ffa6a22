"""Process subjects: the outcomes of other code, told with what ran, in threads, and by name."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from tests.verification.player import PLAYER, REDUCERS, loss, play, source_of
from verification.cases import corpus, find
from verification.examine import examine, subject_named
from verification.judges.bits import judge_bits
from verification.revisions.checkout import Checkout
from verification.revisions.source import working_tree
from verification.subjects.child_process import environment
from verification.subjects.live import live_subject
from verification.subjects.process import BUNDLE, ProcessSubject

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Checkout.here().root


def test_the_working_tree_gives_the_same_bits_in_a_process_of_its_own():
    """Cases of every stage, in several bundles: arrays, gradients, aliases, changed inputs, texts and failures."""
    chosen = corpus()[::25]
    assert len(chosen) > 2 * BUNDLE
    assert {case.stage for case in corpus()} == {case.stage for case in chosen}
    told: list[tuple[int, int]] = []
    with ProcessSubject(working_tree(Checkout.here())) as subject:
        outcomes = subject.run_all(chosen, lambda done, total: told.append((done, total)))
    assert [case.id for case in chosen] == list(outcomes)
    assert told[0] == (BUNDLE, len(chosen))
    assert told[-1] == (len(chosen), len(chosen))
    live = live_subject()
    for case in chosen:
        outcome, expected = outcomes[case.id], live.run(case)
        assert outcome is not None, case.id
        assert all(finding.agrees for finding in judge_bits(case, outcome, expected, "live")), case.id
        assert (expected.failure, expected.texts, expected.aliases) == (outcome.failure, outcome.texts, outcome.aliases)


def test_provenance_names_what_ran(player):
    """The file of relax lies in the source, that of the harness in the working tree; torch and platform are told."""
    told = player.provenance
    assert Path(told.relax_file) == player.source.root / "relax" / "__init__.py"
    assert Path(told.verification_file) == ROOT / "verification" / "__init__.py"
    assert told.torch == torch.__version__
    assert told.platform.startswith("cpu-torch")
    assert told.calls == ("reduce_loss",)
    assert told.source == player.source


def test_two_sources_are_told_apart(tmp_path):
    """The same call of two sources gives two results, though the working tree has a relax of its own."""
    doubled = source_of(tmp_path / "a", {REDUCERS: PLAYER})
    tripled = source_of(tmp_path / "b", {REDUCERS: PLAYER.replace("2 * values", "3 * values")})
    with ProcessSubject(doubled) as one, ProcessSubject(tripled) as other:
        assert loss(one.run(play(10))) == 20
        assert loss(other.run(play(10))) == 30


def test_python_settings_of_the_parent_do_not_reach_the_child(tmp_path, monkeypatch):
    """PYTHONPATH and PYTHONSTARTUP of whoever starts the harness say nothing about a revision."""
    source_of(tmp_path / "planted", {REDUCERS: "def reduce_loss(*a, **k): return 0.0"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "planted"))
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    kept = environment(Path("/source"), Path("/harness"))
    assert {name for name in kept if name.startswith("PYTHON")} == {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    assert kept["PYTHONPATH"] == "/source:/harness"
    monkeypatch.chdir(tmp_path / "planted")
    with ProcessSubject(source_of(tmp_path / "real", {REDUCERS: PLAYER})) as subject:
        assert loss(subject.run(play(10))) == 20


def test_subjects_run_in_threads_and_one_subject_serves_several(tmp_path):
    """Calls of one subject from two threads wait for each other, and each gets its own results."""
    subjects = [
        ProcessSubject(source_of(tmp_path / f"x{factor}", {REDUCERS: PLAYER.replace("2 * v", f"{factor} * v")}))
        for factor in (2, 3)
    ]
    results: dict[tuple[int, int], list[float]] = {}

    def work(which: int, offset: int) -> None:
        cases = [play(100 * offset + number) for number in range(10, 10 + 2 * BUNDLE)]
        results[which, offset] = [loss(one) for one in subjects[which].run_all(cases).values()]

    threads = [threading.Thread(target=work, args=(which, offset)) for which in (0, 1) for offset in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (which, offset), found in results.items():
        expected = [(which + 2.0) * (100 * offset + number) for number in range(10, 10 + 2 * BUNDLE)]
        assert expected == found
    assert len(results) == 4
    for subject in subjects:
        subject.close()


def test_a_subject_by_name_is_judged_like_any_other(tmp_path):
    """The judges run on a checkout by name: a source that doubles every loss differs, and is no problem of theirs."""
    source_of(tmp_path / "player", {REDUCERS: PLAYER})
    name = f"checkout:{tmp_path / 'player'}"
    case = next(case for case in corpus() if case.stage == "loss.reduce" and case.error is None)
    found = examine(case, name)
    assert found.problems == []
    assert any(one.judge == "bits" and not one.agrees for one in found.comparisons)
    assert examine(find("kl.estimate/grpo/k1-coef0.1"), name).absent == {name: 1}
    subject_named(name).close()
    subject_named.cache_clear()


@pytest.mark.parametrize("name", ["revision:nope", "checkout:/nowhere", "checkout:BROKEN"])
def test_a_subject_that_cannot_be_had_is_a_usage_error(tmp_path, name):
    """Nothing is judged, and the message names what was asked for."""
    source_of(tmp_path / "broken", {REDUCERS: "import no_such_library"})
    name = name.replace("BROKEN", str(tmp_path / "broken"))
    with pytest.raises(ValueError, match=f"subject '{name}'"):
        subject_named(name)
