"""The document of a check: findings with evidence, distances counted into bins, cases that were not there."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from verification.cases import find
from verification.cases.case import Case
from verification.check import run_check
from verification.examine import subject_named
from verification.goldens import platform_key
from verification.goldens.compare import default_store
from verification.judges.comparison import Comparison
from verification.ranks.cases import rank_cases
from verification.ranks.report import RankReport, rank_document
from verification.report.check_document import check_document, document_of
from verification.report.document import LAID_OPEN, Finding, Lines, foremost
from verification.report.histograms import histograms
from verification.report.summary import Measured, Problem, Report, merge_measured

CASES = [find("loss.reduce/grpo/mean-holes"), find("loss.reduce/grpo/sum-holes"), find("kl.estimate/grpo/k1-close")]


class OneUlpOff:
    """The live code, its losses one ulp too high; it has no estimate of KL."""

    name = "one ulp off"

    def run(self, case):
        import torch

        if case.stage != "loss.reduce":
            return None
        outcome = subject_named("live").run(case)
        outcome.arrays["loss"] = torch.nextafter(outcome.arrays["loss"], torch.tensor(9e9))
        return outcome


OFF = f"{__name__}:OneUlpOff"
HAS_GOLDENS = default_store().has_platform(platform_key())


@pytest.fixture(scope="module")
def differing():
    """The document of a check that differs on two of three cases and lacks the third."""
    report = run_check(CASES, subject=OFF, jobs=1, whole=False)
    return check_document(report, CASES, subject_named(OFF).run, f"check --subject {OFF}")


def test_a_difference_has_its_case_laid_open(differing):
    """The first finding on a case shows input, both values with their bits, the exact value, and what runs it again."""
    first, *others = [one for one in differing.findings if one.case == CASES[0].id]
    assert first.what == "bits against frozen: loss"
    assert first.ulps == 1.0
    assert first.command == f"relax-verify check --subject {OFF} --case {CASES[0].id}"
    titles = [sheet.title for sheet in first.evidence]
    assert titles[0] == "outcomes"
    assert titles[-1] == "inputs"
    (loss,) = [sheet for sheet in first.evidence if sheet.title.startswith("loss ")]
    assert loss.columns == ("", OFF, "frozen = golden" if HAS_GOLDENS else "frozen", "exact")
    _, got, expected, _ = loss.rows[0]
    got_bits, expected_bits = (int(cell.partition("(0x")[2].rstrip(")"), 16) for cell in (got, expected))
    assert expected_bits - 1 == got_bits  # upwards from a negative number
    assert bool(others) is HAS_GOLDENS
    assert not any(one.evidence for one in others)


def test_what_is_not_there_is_tried_and_skipped(differing):
    """Every case that was asked for stands in the list; one that the subject lacks has the reason beside it."""
    assert [(one.case, one.skipped) for one in differing.tried] == [
        (CASES[0].id, ""),
        (CASES[1].id, ""),
        (CASES[2].id, f"not there in {OFF}"),
    ]


def test_the_verdict_and_the_facts_are_those_of_the_report(differing):
    """Exit code, verdict, platform and the recordings of the goldens are in the document."""
    assert (differing.exit_code, differing.verdict.startswith("VERDICT different (")) == (1, True)
    assert {"torch", "platform", "elapsed", "goldens"} <= dict(differing.facts).keys()
    assert [sheet.title for sheet in differing.sheets] == [
        "stages",
        "judges",
        "distance to the exact value",
        *["provenance of the goldens"] * HAS_GOLDENS,
    ]
    recorded = [sheet for sheet in differing.sheets if sheet.title.startswith("provenance")]
    assert sum(int(row[4]) for sheet in recorded for row in sheet.rows) >= len(CASES) * HAS_GOLDENS


def test_evidence_that_cannot_be_gathered_says_why():
    """A case that fails while it is laid open leaves the reason in its place, and the page stands."""

    def broken(case):
        raise RuntimeError("out of order")

    one = Comparison(CASES[0].id, "loss.reduce", "grpo", "bits", "frozen", "loss", False, 1.0, "d")
    document = document_of(Report("live", (one,), (), 1), CASES[:1], verb="check", sheets=(), facts=(), evidence=broken)
    (finding,) = document.findings
    assert finding.evidence == (Lines("evidence", ("cannot be gathered: RuntimeError: out of order",)),)


def test_a_problem_and_no_verdict_are_told():
    """A problem of the harness is a finding of its own kind, and the verdict line says that there is none."""
    report = Report("live", (), (Problem("loss.reduce/grpo/x", "rounding", "out of order"),), 1)
    case = Case("loss.reduce/grpo/x", "loss.reduce", "grpo", {})
    document = document_of(report, [case], verb="check", sheets=(), facts=(), evidence=lambda case: ())
    assert document.verdict == "NO VERDICT: the harness itself failed (1 problems), see above"
    (finding,) = document.problems
    assert (finding.stage, finding.algorithm, finding.what, finding.detail) == (
        "loss.reduce",
        "grpo",
        "rounding",
        "out of order",
    )
    assert document.differences == ()


def test_findings_of_the_whole_are_run_again_whole():
    """Parity and the lock belong to no case, so their command has no filter."""
    one = Comparison("parity/x", "advantage.estimate", "grpo", "parity", "frozen dispatch", "kernel", False)
    document = document_of(
        Report("live", (one,), (), 1), [], verb="check", sheets=(), facts=(), evidence=lambda case: ()
    )
    assert document.findings[0].command == "relax-verify check"
    report = Report("live", (), (Problem("-", "known weaknesses", "not seen"),), 1)
    document = document_of(report, [], verb="check", sheets=(), facts=(), evidence=lambda case: ())
    assert document.findings[0].command == "relax-verify check"


def test_the_foremost_cases_are_of_every_kind():
    """Where there is no room for all, each stage and algorithm shows its first before any shows its second."""
    many = [Finding(f"s/a/{number}", "s", "a", "x") for number in range(LAID_OPEN + 50) for _ in range(2)]
    few = [Finding(f"s/b/{number}", "s", "b", "x") for number in range(2)]
    chosen = foremost([*many, *few])
    assert len(chosen) == LAID_OPEN
    assert chosen[:4] == ["s/a/0", "s/b/0", "s/a/1", "s/b/1"]
    assert chosen[4:] == [f"s/a/{number}" for number in range(2, LAID_OPEN - 2)]


def test_distances_between_bits_fall_into_bins_that_double():
    """0, 1, 2 to 3, 4 to 7, ten doublings at a time from 2^10 on, and infinity; of all judges but rounding."""
    told = [("bits", 0.0), ("bits", 1.0), ("bits", 3.0), ("bits", 4.0), ("bits", 2.0**10), ("bits", 2.0**20 - 1)]
    told += [("bits", 2.0**20), ("bits", 2.0**60), ("bits", math.inf), ("invariance", 2.0), ("rounding", 5.0)]
    about = Comparison("s/a/1", "s", "a", "bits", "frozen", "x", True)
    report = Report("live", tuple(replace(about, judge=judge, ulps=ulps) for judge, ulps in told), (), 1)
    bits, invariance = histograms(report)
    assert (bits.title, invariance.title) == ("bits against frozen", "invariance")
    counted = {name: count for name, count in zip(bits.bins, bits.counts, strict=True) if count}
    assert counted == {
        "0": 1,
        "1": 1,
        "2 to 3": 1,
        "4 to 7": 1,
        "from 2^10": 2,
        "from 2^20": 1,
        "from 2^60": 1,
        "infinity": 1,
    }
    assert invariance.bins == bits.bins
    assert invariance.counts == tuple(int(name == "2 to 3") for name in bits.bins)


def test_distances_to_the_exact_value_are_shares_of_the_bound():
    """Merging counts each comparison by tenths of its bound: 0, up to 10 %, ..., beyond."""
    found = [Measured("f", ulps, 4.0) for ulps in (0.0, 0.4, 0.41, 3.9, 4.0, 4.01, math.inf)]
    (merged,) = merge_measured(found)
    assert merged.shares == (1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 2)
    assert merged.comparisons == 7
    (histogram,) = histograms(Report("live", (), (), 1, formulas=(merged,)))
    assert histogram.axis == "share of the bound of 4 ulps"
    assert dict(zip(histogram.bins, histogram.counts, strict=True))["to 100 %"] == 2


def test_a_bound_of_nothing_knows_only_exact_and_beyond():
    """Where the bound is 0 a distance is exactly 0 or beyond it."""
    assert Measured("f", 0.0, 0.0).shares == (1, *[0] * 11)
    assert Measured("f", 0.1, 0.0).shares == (*[0] * 11, 1)


def test_ranks_have_a_document_of_their_own():
    """Tables by layout, distances to one rank, the input as evidence, and the verb ranks in the command."""
    case = next(case for case in rank_cases() if case.id == "loss.reduce/grpo/mean-holes@dp2")
    about = Comparison(case.id, "loss.reduce", "grpo", "ranks", "one rank", "loss", False, 9.0, "d")
    measured = Measured("policy step over ranks", 9.0, 4.0, 1, case.id, 1)
    report = RankReport("live", (about,), (), 1, formulas=(measured,), ended={"value": 2}, worlds=1, elapsed=1.0)
    document = rank_document(report, [case])
    assert document.title == "relax-verify ranks"
    assert [sheet.title for sheet in document.sheets] == ["rank cases", "compared with", "distance to one rank"]
    assert document.sheets[0].rows[0] == ("loss.reduce", "dp2", "1", "1", "1", "9")
    (finding,) = document.findings
    assert finding.command == f"relax-verify ranks --case {case.id}"
    assert finding.evidence[-1].title == "inputs"
    assert document.histograms[-1].chapter == "Distances to one rank, by formula"
    assert document.histograms[-1].counts[-1] == 1
    assert dict(document.facts)["how ranks ended"] == "2 value"
