"""A subject in another process, asked for many outcomes at a time: the findings are those of one case at a time."""

from __future__ import annotations

import pytest

from tests.verification.player import PLAYER, REDUCERS, loss, play, playing, source_of
from verification.cases import corpus
from verification.examine import Examined, examine, examine_all, subject_named
from verification.judges.transformation import FLUSHED
from verification.revisions.checkout import Checkout
from verification.subjects.bundled import Bundled
from verification.subjects.process import ProcessSubject

pytestmark = pytest.mark.usefixtures("cache")


def test_many_cases_at_a_time_are_judged_as_each_alone(monkeypatch):
    """Every comparison, measured distance and count of a sample of the corpus; few are run one by one."""
    name, alone, asked = f"checkout:{Checkout.here().root}", Examined(), []
    chosen = corpus()[::97]
    for case in chosen:
        alone.add(examine(case, name))
    run = ProcessSubject.run
    monkeypatch.setattr(ProcessSubject, "run", lambda *given, **how: asked.append(given) or run(*given, **how))
    together = examine_all(chosen, name)
    subject_named(name).close()
    subject_named.cache_clear()
    assert any(one.judge == "invariance" for one in alone.comparisons)
    assert FLUSHED not in {one.against for one in alone.comparisons}  # a mode of this thread, which they do not share
    assert alone == together
    assert asked == []


def test_a_case_that_ends_the_process_is_alone_a_problem(tmp_path):
    """The cases beside it are judged, though the bundle that they came in was lost."""
    source_of(tmp_path / "player", {REDUCERS: PLAYER})
    name, chosen = f"checkout:{tmp_path / 'player'}", [play(10), play(1), play(11)]
    found = examine_all(chosen, name)
    subject_named(name).close()
    subject_named.cache_clear()
    assert {(play(1).id, "subject")} == {(one.case, one.where) for one in found.problems if one.where == "subject"}
    assert {play(10).id, play(11).id} == {one.case for one in found.comparisons}


def test_each_way_of_running_is_fetched_for_itself(tmp_path):
    """Two cases of one id have their own outcomes, and what was fetched on one thread is not taken for two."""
    with playing(tmp_path) as subject:
        bundled, cases = Bundled(subject), [play(10, "same"), play(11, "same")]
        bundled.fetch(cases)
        pid = subject.pid
        subject.close()
        assert [loss(bundled.run(case)) for case in cases] == [20, 22]
        assert loss(bundled.run(cases[0], threads=2)) == 20
        assert pid != subject.pid
