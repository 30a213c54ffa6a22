"""The comparison of two sources: what counts as a difference, what as not there, and what the reports say of it."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch

from tests.verification import diff_defects as defects
from verification.cases.registry import corpus, find
from verification.diff.cli import print_diff
from verification.diff.evidence import smallest
from verification.diff.findings import Diff
from verification.diff.report import as_dict, document_of
from verification.diff.run import compare
from verification.diff.ways import Way, ways
from verification.explaining.inputs import case_as_data
from verification.report.as_json import strict_json
from verification.report.document import Sheet
from verification.report.html import html_page
from verification.report.junit import junit_xml
from verification.selection import choose
from verification.subjects.in_process import Implementation
from verification.subjects.outcome import Failure, Outcome

CASES = choose(
    corpus(),
    stages=["reward.normalize"],
    algorithms=["grpo", "gspo", "rloo"],
    patterns=["*/binary-g8", "*/binary-g8-*std"],
)
CASE = find("kl.estimate/grpo/k1-coef0.1")


@pytest.fixture(scope="module")
def epsilon() -> Diff:
    """Another epsilon, seen by some of the cases."""
    return defects.compared(defects.EPSILON, CASES)


def text_of(diff: Diff, *, quiet: bool = False) -> str:
    out = io.StringIO()
    print_diff(diff, out, quiet=quiet)
    return out.getvalue()


def test_the_same_code_is_equivalent():
    """No case differs, all are compared, and the last line says so."""
    diff = defects.compared(Implementation("again", SimpleNamespace(**defects.CALLS)), CASES)
    assert (len(CASES), (), 0, "VERDICT equivalent") == (diff.compared, diff.differing, diff.exit_code, diff.verdict)
    assert text_of(diff).splitlines()[-1] == "VERDICT equivalent"


def test_progress_goes_on_while_inputs_are_made_smaller():
    """Each stage and algorithm that differs is named before its smaller input is looked for."""
    told: list[tuple[int, int, str]] = []
    found = defects.compared(defects.EPSILON, CASES, shrink_seconds=0.0, shrinking=lambda *one: told.append(one))
    names = [f"{one.stage}/{one.algorithm}" for one in found.groups if one.differing]
    assert len(names) > 1
    assert sorted(names) == sorted(name for _, _, name in told)
    assert [(number, len(names)) for number in range(len(names))] == [(done, total) for done, total, _ in told]


def test_what_differs_is_counted_by_stage_and_algorithm(epsilon):
    """Each row counts its cases and those that differ, and names the one that is furthest apart; the sum is N."""
    expected = {}
    for algorithm in ("grpo", "gspo", "rloo"):
        cases = [case for case in CASES if case.algorithm == algorithm]
        found = [compare(case, defects.LIVE.run(case), defects.EPSILON.run(case)) for case in cases]
        apart = {one.case.id: one.ulps for one in found if one is not None}
        expected[algorithm] = (len(cases), len(apart), max(apart.values(), default=None))
    assert expected == {one.algorithm: (one.cases, one.differing, one.ulps) for one in epsilon.groups}
    assert expected["rloo"][1] == 0 < expected["grpo"][1] < expected["grpo"][0]
    total = sum(differing for _, differing, _ in expected.values())
    assert (f"VERDICT different ({total})", 1) == (epsilon.verdict, epsilon.exit_code)
    for group in epsilon.groups[:2]:
        where = compare(find(group.where), defects.LIVE.run(find(group.where)), defects.EPSILON.run(find(group.where)))
        assert where is not None
        assert group.ulps == where.ulps


def test_groups_that_shrink_to_one_input_are_told_together(epsilon):
    """One block for grpo and gspo, which differ in nothing but the name; none for rloo."""
    (one,) = smallest(epsilon)
    assert (one.stage, one.algorithms) == ("reward.normalize", ("grpo", "gspo"))
    assert "rewards differs by " in one.told
    assert " 17 of float32 on 2 samples with 2 numbers" in one.told


def test_the_text_lays_the_smallest_input_open_and_ends_with_the_verdict(epsilon):
    """Inputs in decimal and hex, both results in both, the exact value, the command that runs the case again."""
    text = text_of(epsilon)
    for words in (
        "reward=1.0 (0x3ff0000000000000)",
        "0.7071057558059692 (0x3fe6a09c40000000)",  # of A: 0.5 / (0.70710677 + 1e-6)
        "0.7071047425270081 (0x3fe6a09a20000000)",  # of B: 0.5 / (0.70710677 + 2e-6)
        "0.70710578118796426071",  # the exact value
        f"relax-verify diff a b --case {epsilon.groups[0].smallest.origin.id}",
    ):
        assert words in text
    assert epsilon.verdict == text.splitlines()[-1]
    assert f"{epsilon.verdict}\n" == text_of(epsilon, quiet=True)


def test_json_holds_everything(epsilon):
    """Every differing case with its details, every group, and the shrunk input and both outcomes in bits."""
    data = json.loads(strict_json(as_dict(epsilon)))
    assert [one.case.id for one in epsilon.differing] == [one["case"] for one in data["differing"]]
    assert [one.ulps for one in epsilon.differing] == [one["ulps"] for one in data["differing"]]
    group = data["groups"][0]
    assert (group["algorithm"], group["smallest"]["size"]) == ("grpo", [2, 2])
    assert json.loads(strict_json(case_as_data(epsilon.groups[0].smallest.found.case))) == group["smallest"]["case"]
    bits = [group["smallest"][side]["arrays"]["rewards"]["bits"][0] for side in ("a", "b")]
    assert bits == ["3fe6a09c40000000", "3fe6a09a20000000"]


def test_the_document_lays_each_case_open_and_counts_what_was_tried(epsilon):
    """A finding a difference, the shrunk input with the case that it comes from, and a JUnit case for each case."""
    document = document_of(epsilon, CASES)
    assert {one.case.id for one in epsilon.differing} == {one.case for one in document.findings}
    origin = epsilon.groups[0].smallest.origin.id
    (finding,) = [one for one in document.findings if one.case == origin and one.evidence]
    shown = [row for sheet in finding.evidence if isinstance(sheet, Sheet) for row in sheet.rows]
    assert any("0.7071047425270081 (0x3fe6a09a20000000)" in cell for row in shown for cell in row)
    assert f"--case {origin}" in finding.command
    suites = ElementTree.fromstring(junit_xml(document))
    assert (str(len(CASES)), str(len(epsilon.differing))) == (suites.get("tests"), suites.get("failures"))
    page = html_page(document)
    assert "VERDICT different" in page
    assert "0x3fe6a09a20000000" in page


def _not_there(live, args, samples):
    if args.advantage_estimator == "gspo":
        raise NotImplementedError
    return live(args, samples)


def test_what_a_side_lacks_is_counted_and_listed_and_is_never_equal():
    """The cases of an algorithm that B does not know are not compared, and named; the others are."""
    diff = defects.compared(defects.planted("post_process_rewards", _not_there), CASES)
    absent = tuple(case.id for case in CASES if case.algorithm == "gspo")
    assert ((), absent) == (diff.not_there["A"], diff.not_there["B"])
    assert (len(CASES) - len(absent), "VERDICT equivalent") == (diff.compared, diff.verdict)
    assert {"grpo", "rloo"} == {group.algorithm for group in diff.groups}
    skipped = {one.case: one.skipped for one in document_of(diff, CASES).tried if one.skipped}
    assert dict.fromkeys(absent, "not there in B") == skipped
    assert f"B: {len(absent)} cases" in text_of(diff)
    assert absent[0] in text_of(diff)


def test_nothing_compared_is_no_verdict():
    """Where B has none of the cases, exit 2 and no VERDICT."""
    cases = [case for case in CASES if case.algorithm == "gspo"]
    diff = defects.compared(defects.planted("post_process_rewards", _not_there), cases)
    assert (diff.exit_code, diff.verdict, diff.compared) == (2, None, 0)
    assert "VERDICT equivalent" not in text_of(diff)
    assert "NO VERDICT: nothing was compared" in text_of(diff).splitlines()[-1]


def _reworded(live, *positional, **keywords):
    try:
        return live(*positional, **keywords)
    except ValueError as error:
        raise ValueError("something is wrong") from error


def test_an_error_in_other_words_is_a_note_and_no_difference():
    """The type is what counts; both messages are shown, counted apart."""
    case = find("reward.normalize/gdpo/bad-nan")
    diff = defects.compared(defects.planted("post_process_rewards", _reworded), [case])
    (note,) = diff.reworded
    assert ("VERDICT equivalent", case.id, "something is wrong") == (diff.verdict, note.case, note.b)
    assert "sample 6 (group 41) is nan" in note.a
    assert "the same error in other words, which is no difference: 1 cases" in text_of(diff)
    assert "something is wrong" in text_of(diff)


def test_another_type_of_error_is_a_difference():
    """The same words under another type are another result."""
    case = find("reward.normalize/gdpo/bad-nan")
    diff = defects.compared(defects.OTHER_TYPE, [case], shrink_seconds=0)
    assert (diff.verdict, diff.reworded) == ("VERDICT different (1)", ())
    assert diff.differing[0].comparisons[0].what == "failure"


def test_fewer_distances_do_not_hide_a_difference_without_any():
    """An alias that is gone has no distance: the case differs, and the table says so with a dash."""
    diff = defects.compared(defects.ALIASES, [find("advantage.estimate/grpo/mixed")], shrink_seconds=0)
    assert (diff.groups[0].differing, diff.groups[0].ulps) == (1, None)
    assert diff.verdict == "VERDICT different (1)"


def outcome(*values: float, dtype: torch.dtype = torch.float32, **more) -> Outcome:
    return Outcome(arrays={"kl[0]": torch.tensor(values, dtype=dtype)}, **more)


WAYS = {
    "other numbers": (outcome(1.0, 2.0), outcome(1.0, 3.0), {Way("kl", "numbers")}),
    "a number that became NaN": (outcome(1.0), outcome(float("nan")), {Way("kl", "number | nan")}),
    "a NaN that became a number": (outcome(float("nan")), outcome(1.0), {Way("kl", "nan | number")}),
    "an infinity": (outcome(1.0), outcome(float("-inf")), {Way("kl", "number | infinity")}),
    "the sign of zero": (outcome(0.0, 2.0), outcome(-0.0, 2.0), {Way("kl", "sign of zero")}),
    "numbers, and a zero's sign": (
        outcome(0.0, 2.0),
        outcome(-0.0, 3.0),
        {Way("kl", "numbers"), Way("kl", "sign of zero")},
    ),
    "a dtype": (outcome(1.0), outcome(1.0, dtype=torch.float64), {Way("kl", "torch.float32 | torch.float64")}),
    "a shape": (outcome(1.0), outcome(1.0, 1.0), {Way("kl", "shape")}),
    "nothing there": (outcome(1.0), Outcome(), {Way("kl", "missing")}),
    "a failure": (
        outcome(1.0),
        Outcome(failure=Failure("ValueError", "response 12 of [3, 4, 5] is -1.5e-07")),
        {Way("failure", "a result | ValueError: response # of [#] is #")},
    ),
    "an alias": (
        outcome(1.0, aliases=frozenset({("kl[0]", "input.kl[0]")})),
        outcome(1.0),
        {Way("aliases", "kl and input.kl")},
    ),
    "a changed input": (
        outcome(1.0),
        outcome(1.0, mutated={"kl[3]": torch.ones(1)}),
        {Way("mutated inputs", "kl")},
    ),
    "a text": (Outcome(texts={"save": "1"}), Outcome(texts={"save": "2"}), {Way("text save", "")}),
}


@pytest.mark.parametrize("kind", WAYS)
def test_each_kind_of_difference_is_a_way_of_its_own(kind):
    """Results without their index, and what became of them; numbers that became other numbers come first."""
    a, b, expected = WAYS[kind]
    found = compare(CASE, a, b)
    assert found is not None
    told = ways(found.comparisons, a, b)
    assert expected == set(told)
    assert len(expected) == 1 or told[0].how == "numbers"
