"""JUnit: suites, counts, results, and XML that any reader takes."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.verification.report_examples import HOLDING, HOSTILE, differing
from verification.report.document import Document, Finding
from verification.report.junit import junit_xml
from verification.report.visible import visible

OUTCOMES = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def parsed(document: Document) -> ElementTree.Element:
    return ElementTree.fromstring(junit_xml(document).encode())


@pytest.mark.parametrize(
    "document", [HOLDING, differing(), differing(HOSTILE)], ids=["holding", "differing", "hostile"]
)
def test_counts_are_those_of_the_elements(document):
    """tests, failures, errors and skipped of each suite and of the whole are what the test cases say."""
    root = parsed(document)
    assert root.tag == "testsuites"
    for element in (root, *root.findall("testsuite")):
        cases = list(element.iter("testcase"))
        assert int(element.get("tests")) == len(cases) > 0
        for count, kind in OUTCOMES.items():
            assert int(element.get(count)) == sum(case.find(kind) is not None for case in cases)
    for case in root.iter("testcase"):
        assert case.get("name")
        assert case.get("classname")
        assert len(case) <= 1


def test_every_case_has_its_result():
    """A difference is a failure with all details, a problem an error, what is not there is skipped, the rest passed."""
    document = differing()
    passed = replace(document.tried[0], case="kl.estimate/grpo/passed")
    root = parsed(replace(document, tried=(*document.tried, passed)))
    suites = {suite.get("name"): suite for suite in root}
    assert set(suites) == {"kl.estimate", "loss.reduce"}
    results = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert results == {
        **{f"kl.estimate/grpo/{number}-plain": ["failure"] for number in range(3)},
        "kl.estimate/grpo/passed": [],
        "loss.reduce/gspo/broken": ["error"],
        "loss.reduce/gspo/absent": ["skipped"],
    }
    failure = next(root.iter("failure"))
    assert failure.get("message") == "bits: plain, and 1 more"
    for part in ("difference: bits: plain", "difference: rounding: plain", "first at [2]", "relax-verify check --case"):
        assert part in failure.text
    assert next(root.iter("skipped")).get("message") == "not there in plain"


def test_a_case_that_differs_beside_a_problem_is_a_failure():
    """A problem on a case does not hide that it differs: one failure, whose text has both."""
    document = differing(cases=1)
    (difference, *_), problem = document.differences, document.problems[0]
    both = replace(document, findings=(replace(problem, case=difference.case), difference))
    case = parsed(both).find(f".//testcase[@name='{difference.case}']")
    assert [child.tag for child in case] == ["failure"]
    assert case[0].get("message").startswith(difference.what)
    assert "problem: golden plain" in case[0].text


def test_hostile_text_is_well_formed():
    """Control characters and surrogates, which XML has no place for, are spelt; markup is text."""
    document = differing(HOSTILE)
    root = parsed(document)
    assert {case.get("name") for case in root.iter("testcase")} >= {visible(one.case) for one in document.findings}
    assert visible(HOSTILE) in next(root.iter("failure")).text


def test_no_verdict_is_an_error():
    """Where nothing was compared there is an error, so that a reader of this file alone does not take it for a pass."""
    none = replace(HOLDING, verdict="NO VERDICT: nothing was compared", exit_code=2)
    (error,) = parsed(none).iter("error")
    assert error.get("message") == "NO VERDICT: nothing was compared"
    assert len(list(parsed(HOLDING).iter("error"))) == 0


def test_a_finding_without_a_stage_has_a_suite():
    """What belongs to no stage stands in a suite of its own."""
    lost = replace(HOLDING, findings=(Finding("-", "", "", "known weaknesses", "x", kind="problem"),), exit_code=2)
    assert [suite.get("name") for suite in parsed(lost)] == ["-", "loss.reduce"]
