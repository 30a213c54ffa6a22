"""What a request must state, decided from a comparison that is given: every way to be settled, and every complaint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from verification.cases.case import Case
from verification.diff.findings import CaseDiff, Diff
from verification.diff.run import compare
from verification.goldens.changes import CHANGED, GONE, INPUTS, NEW, REWRITTEN
from verification.goldens.compare import golden_of
from verification.goldens.digest import input_digest
from verification.report.as_json import strict_json
from verification.report.text import lines
from verification.request import statement as request
from verification.request.changed import Changed, GoldenChange
from verification.request.report import as_dict, document_of, sheets
from verification.request.statement import Statement, state
from verification.revisions.source import REVISION, Source
from verification.subjects.outcome import Outcome

HERE, THERE = "cpu-here", "cpu-there"
OLD, WANTED, OTHER = (Outcome(arrays={"loss": torch.tensor(value)}) for value in (1.0, 2.0, 3.0))
CASES = tuple(Case(f"loss.reduce/grpo/{name}", "loss.reduce", "grpo", {"values": [name]}) for name in "abc")
FIRST = CASES[0].id
EVERYWHERE = Case("roles.resolve/grpo/any", "roles.resolve", "grpo", {})


def source(tree: str) -> Source:
    return Source(tree, REVISION, tree * 40, tree * 40, Path(), dirty=False)


def difference(case: Case = CASES[0], after: Outcome = WANTED) -> CaseDiff:
    found = compare(case, OLD, after)
    assert found is not None
    return found


def made(change: tuple[str, ...], by_id: dict[str, Case]) -> GoldenChange:
    """The change of a golden that was recorded from its case's inputs, unless ``change`` names others."""
    case, platform, kind, *inputs = change
    known = input_digest(by_id[case]) if case in by_id and kind != GONE else ""
    return GoldenChange(case, platform, kind, inputs=inputs[0] if inputs else known)


def stated(
    *changes: tuple[str, ...],
    differing: tuple[CaseDiff, ...] = (),
    standing: dict[str, Outcome] | None = None,
    recorded: dict[str, set[str]] | None = None,
    **about: object,
) -> Statement:
    """The statement on changes of goldens, ``(case, platform, kind)``; ``standing``: what each golden holds here."""
    cases = (*CASES, EVERYWHERE)
    by_id = {case.id: case for case in cases}
    changed = Changed(
        base="b" * 40,
        head="c" * 40,
        goldens=tuple(made(change, by_id) for change in changes),
        recorded={name: frozenset(platforms) for name, platforms in (recorded or {}).items()},
        frozen=(),
        relax=("relax/x.py",),
    )
    diff = Diff(source("b"), source("c"), len(cases), compared=len(cases), differing=differing)
    goldens = {name: golden_of(by_id[name], held, HERE) for name, held in (standing or {}).items()}
    return state(replace(changed, **about), diff, cases, HERE, goldens)


def test_no_difference_holds():
    """Nothing differs and no golden changed: equivalent."""
    found = stated()
    assert (found.exit_code, found.verdict) == (0, "VERDICT equivalent")


def test_a_difference_with_its_golden_is_stated():
    """A case that differs, whose golden changed and holds the new outcome, is settled; the verdict counts it."""
    found = stated((FIRST, HERE, CHANGED), differing=(difference(),), standing={FIRST: WANTED})
    assert (found.exit_code, found.verdict) == (0, "VERDICT stated (1)")
    assert found.settled == {request.STATED: (FIRST,)}


@pytest.mark.parametrize(
    ("changes", "standing", "what"),
    [
        ([], {FIRST: OLD}, request.UNCHANGED),
        ([(FIRST, THERE, CHANGED)], {FIRST: OLD}, request.UNCHANGED),
        ([(CASES[1].id, THERE, CHANGED)], {FIRST: OLD}, request.UNCHANGED),
        ([(FIRST, HERE, REWRITTEN)], {FIRST: OLD}, request.UNCHANGED),
        ([(FIRST, HERE, CHANGED)], {FIRST: OTHER}, request.OTHERWISE),
        ([(FIRST, HERE, NEW)], {FIRST: OTHER}, request.OTHERWISE),
        ([(FIRST, HERE, GONE)], {}, request.REMOVED),
    ],
)
def test_a_difference_without_its_golden_is_a_complaint(changes, standing, what):
    """A golden that did not change, of another platform or case alone, removed, or with another outcome: not stated."""
    found = stated(*changes, differing=(difference(),), standing=standing)
    assert [(FIRST, what)] == [(one.case, one.what) for one in found.complaints]
    assert (found.exit_code, found.verdict) == (1, "VERDICT unstated (1)")
    assert found.complaints[0].ulps == 2.0**23


def test_the_complaint_shows_both_outcomes():
    """What the code gives and what the golden holds stand in the detail, in bits."""
    (complaint,) = stated(differing=(difference(),), standing={FIRST: OLD}).complaints
    assert "got 2 (0x40000000), expected 1 (0x3f800000)" in complaint.detail


def test_a_difference_that_the_golden_held_already_is_settled():
    """A change that restores what the golden holds needs no new golden."""
    found = stated(differing=(difference(),), standing={FIRST: WANTED})
    assert (found.exit_code, found.settled) == (0, {request.HELD: (FIRST,)})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ((CASES[1].id, HERE, CHANGED), request.NOTHING_DIFFERS),
        ((EVERYWHERE.id, "any", CHANGED), request.NOTHING_DIFFERS),
        ((CASES[1].id, HERE, GONE), request.STANDS),
        ((EVERYWHERE.id, "any", GONE), request.STANDS),
        (("loss.reduce/grpo/of-no-case", HERE, NEW), request.NO_SUCH_CASE),
        ((CASES[1].id, HERE, INPUTS, "sha256:of-something-else"), request.OTHER_INPUTS),
        ((CASES[1].id, HERE, NEW, "sha256:of-something-else"), request.OTHER_INPUTS),
    ],
)
def test_a_golden_that_changed_for_nothing_is_a_complaint(change, what):
    """A golden with another outcome, or gone, of a case that gives what it gave; or one that fits no case."""
    found = stated((FIRST, HERE, CHANGED), change, differing=(difference(),), standing={FIRST: WANTED})
    assert [(change[0], what)] == [(one.case, one.what) for one in found.complaints]
    assert (found.exit_code, found.verdict) == (1, "VERDICT unstated (1)")
    assert found.settled[request.STATED] == (FIRST,)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ((CASES[1].id, HERE, NEW), request.RECORDED),
        ((CASES[1].id, HERE, INPUTS), request.ANEW),
        ((CASES[1].id, HERE, REWRITTEN), request.OTHER_TEXT),
        ((CASES[1].id, THERE, CHANGED), request.NOT_HERE),
        ((CASES[1].id, THERE, GONE), request.NOT_HERE),
        (("loss.reduce/grpo/no-case-any-more", HERE, GONE), request.NO_CASE),
        ((EVERYWHERE.id, HERE, GONE), request.NO_CASE),
    ],
)
def test_goldens_may_change_for_other_reasons(change, word):
    """New cases, changed cases, another way of writing, other platforms and cases that are gone are counted by name."""
    found = stated(change)
    assert (0, "VERDICT equivalent", {word: (change[0],)}) == (found.exit_code, found.verdict, found.settled)


def test_a_golden_of_a_case_that_one_side_lacks_is_counted():
    """Where the base lacks the call nothing was compared, and its golden is no complaint."""
    found = stated((FIRST, HERE, CHANGED))
    diff = replace(found.diff, not_there={"A": (FIRST,)})
    again = state(found.changed, diff, CASES, HERE, {})
    assert (again.exit_code, again.settled) == (0, {request.NOT_COMPARED: (FIRST,)})


def test_without_a_golden_here_that_of_another_platform_must_change():
    """A case recorded on other platforms alone is stated by a golden that changed there, and by nothing less."""
    there = {FIRST: {THERE}}
    found = stated((FIRST, THERE, CHANGED), differing=(difference(),), recorded=there)
    assert (found.exit_code, found.settled) == (0, {request.ELSEWHERE: (FIRST,)})
    silent = stated((FIRST, THERE, REWRITTEN), differing=(difference(),), recorded=there)
    assert [(request.UNCHANGED, f"that of platform {THERE}")] == [(one.what, one.detail) for one in silent.complaints]


def test_cases_that_nothing_records_are_counted_and_alone_give_no_verdict():
    """A case without any golden is named; where no differing case has one, nothing can be said."""
    both = (difference(), difference(CASES[1]))
    found = stated((CASES[1].id, HERE, CHANGED), differing=both, standing={CASES[1].id: WANTED})
    assert (found.exit_code, found.verdict, found.settled[request.UNRECORDED]) == (0, "VERDICT stated (2)", (FIRST,))
    alone = stated(differing=both)
    assert (2, (FIRST, CASES[1].id)) == (alone.exit_code, alone.settled[request.UNRECORDED])
    assert alone.verdict == "NO VERDICT: 2 cases differ, and none has a golden that could state it: record them"


def test_nothing_compared_is_no_verdict():
    """A comparison that compared nothing is no statement, unless something is wrong already."""
    found = stated()
    empty = replace(found.diff, compared=0)
    assert state(found.changed, empty, CASES, HERE, {}).exit_code == 2
    assert state(found.changed, replace(empty, same_tree="b" * 40), CASES, HERE, {}).exit_code == 0


def test_the_report_names_what_is_not_stated():
    """Tables, data and document hold the complaint and what was settled."""
    found = stated((CASES[1].id, HERE, NEW), differing=(difference(),), standing={FIRST: OLD})
    told = "\n".join(lines(sheets(found)))
    for word in (FIRST, request.UNCHANGED, CASES[1].id, request.RECORDED):
        assert word in told
    data = json.loads(strict_json(as_dict(found)), parse_constant=pytest.fail)
    assert ([FIRST], {request.RECORDED: [CASES[1].id]}, 1) == (data["differing"], data["settled"], data["exit_code"])
    document = document_of(found)
    assert (document.exit_code, [one.case for one in document.findings]) == (1, [FIRST])
    assert (document.verdict, document.findings[0].what) == (found.verdict, request.UNCHANGED)


@pytest.mark.parametrize("relax", [(), ("relax/x.py",)])
def test_frozen_copies_that_were_edited_are_named(relax: tuple[str, ...]):
    """Their files are listed; edited together with relax/ the table, the data and the document say so."""
    found = stated(frozen=("verification/frozen/kl.py",), relax=relax)
    told = "\n".join(lines(sheets(found)))
    assert "verification/frozen/kl.py" in told
    assert ("edited together with relax/" in told) is bool(relax)
    assert as_dict(found)["frozen_moved_with_relax"] is bool(relax)
    (note,) = {sheet.note for sheet in document_of(found).sheets if sheet.title == "frozen copies"}
    assert bool(note) is bool(relax)


def test_many_complaints_are_cut_and_counted():
    """The table names twenty, the data all of them."""
    cases = [replace(CASES[0], id=f"loss.reduce/grpo/n{number}") for number in range(23)]
    found = stated(differing=tuple(difference(case) for case in cases), recorded={case.id: {THERE} for case in cases})
    (sheet,) = [one for one in sheets(found) if one.title == "not stated"]
    assert (len(sheet.rows), sheet.note) == (20, "3 more: --json FILE lists them all")
    assert len(as_dict(found)["complaints"]) == 23
