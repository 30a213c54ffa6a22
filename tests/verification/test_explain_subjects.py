"""explain with further subjects: each stands beside the working tree, is judged, and says where it comes from."""

from __future__ import annotations

import json
import re
from typing import ClassVar

import pytest
import torch

from verification.cases import corpus
from verification.cases.case import Case
from verification.cli import main
from verification.explaining import explanation as explaining
from verification.explaining.explanation import Explanation, lay_open
from verification.explaining.tables import sheets
from verification.goldens.compare import default_store
from verification.goldens.platform import platform_key
from verification.report.text import lines
from verification.revisions.checkout import Checkout
from verification.subjects.live import live_subject
from verification.subjects.outcome import Failure, Outcome

NAME = "loss.reduce/grpo/mean-holes"
EVERY = {case.id: case for case in corpus()}


def text(explanation: Explanation) -> str:
    return "\n".join(lines(sheets(explanation)))


class OneUlpUp:
    """The live code, with the first element of every float32 array one ulp up."""

    name = "one ulp up"

    def run(self, case: Case) -> Outcome | None:
        found = live_subject().run(case)
        assert found is not None
        for tensor in found.arrays.values():
            if tensor.dtype == torch.float32 and tensor.numel():
                flat = tensor.view(-1)
                flat[0] = torch.nextafter(flat[0], torch.tensor(torch.inf))
        return found


class Nothing:
    """A subject that has no case."""

    name = "nothing"

    def run(self, case: Case) -> Outcome | None:
        return None


def test_a_subject_that_breaks_is_told(monkeypatch: pytest.MonkeyPatch):
    """A subject that raises has no outcome and says why; the others are still laid open."""

    class Broken:
        name = "broken"

        def run(self, case: Case) -> Outcome | None:
            raise RuntimeError("the child process died")

    real = explaining.subject_named
    monkeypatch.setattr(explaining, "subject_named", lambda name: Broken() if name == "broken" else real(name))
    monkeypatch.setattr("verification.examine.subject_named", lambda name: Broken() if name == "broken" else real(name))
    found = lay_open(EVERY[NAME], ["broken"])
    told = text(found)
    assert "cannot be run: RuntimeError: the child process died" in told
    assert "live = frozen" in told
    assert found.exit_code == 2


class Counting:
    """A subject that counts what it is asked."""

    name = "counting"
    asked: ClassVar[list[str]] = []

    def run(self, case: Case) -> Outcome:
        self.asked.append(case.id)
        return Outcome(failure=Failure("ValueError", "no"))


def test_a_subject_is_asked_once_for_what_is_shown_and_judged():
    """Where the case fails, so that no transformation is run, one call gives the outcome and the findings."""
    Counting.asked.clear()
    found = lay_open(EVERY[NAME], [f"{__name__}:Counting"])
    assert Counting.asked == [NAME]
    assert found.judged[f"{__name__}:Counting"].comparisons


def test_further_subjects_stand_beside_the_working_tree(capsys: pytest.CaptureFixture[str]):
    """--subject, repeated, adds subjects; each is judged and held to the working tree; the commands name them."""
    mine = f"{__name__}:OneUlpUp"
    assert main(["explain", NAME, "--subject", mine, "--subject", "frozen"]) == 1
    told = capsys.readouterr().out
    golden = ["golden"] if default_store().has_platform(platform_key()) else []
    alike = " = ".join(["live", "frozen", *golden])
    assert f"{alike} and {mine}: 1 of 1 differ, first at [], at most 1 ulps apart" in told
    judges = told.split("\njudges\n")[1].split("\n\n")[0]
    assert ["live", mine, "frozen"] == [line.split()[0] for line in judges.splitlines()[1:]]
    assert [line.split()[-1] for line in judges.splitlines()[1:] if mine not in line] == ["0", "0"]
    rows = [line.split() for line in told.split("\ndifferences\n")[1].split("\n\n")[0].splitlines()[1:]]
    assert {mine} == {row[0] for row in rows}
    assert {"frozen", *golden, "live"} <= {row[2] for row in rows}
    assert f"relax-verify explain {NAME} --subject {mine} --subject frozen\n" in told
    assert f"relax-verify check --case {NAME} --subject {mine}\n" in told
    assert told.splitlines()[-1].startswith("VERDICT different (")


def test_a_revision_stands_beside_the_working_tree(capsys, monkeypatch: pytest.MonkeyPatch, tmp_path):
    """revision:SHA runs in a process of its own and says where it comes from; what it lacks is no agreement."""
    monkeypatch.setenv("RELAX_VERIFY_CACHE", str(tmp_path))
    assert main(["explain", NAME, "--subject", "revision:HEAD", "--json"]) in (0, 1)  # HEAD may not be what is here
    sides = {side["name"]: side for side in json.loads(capsys.readouterr().out)["subjects"]}
    assert list(sides) == ["live", "revision:HEAD", "frozen", "golden"]
    told = sides["revision:HEAD"]["provenance"]
    assert told["commit"] == Checkout.here().commit()
    assert told["relax"].startswith(str(tmp_path))
    assert list(sides["live"]["outcome"]["arrays"]) == list(sides["revision:HEAD"]["outcome"]["arrays"])
    assert sides["live"]["provenance"] is None


def test_a_subject_that_lacks_the_case_gives_no_verdict(capsys: pytest.CaptureFixture[str]):
    """Though the working tree agrees with everything, nothing is known of a subject that is not there."""
    mine = f"{__name__}:Nothing"
    assert main(["explain", NAME, "--subject", mine]) == 2
    told = capsys.readouterr().out
    assert re.search(rf"{mine} +not there", told)
    assert told.splitlines()[-1] == f"NO VERDICT: nothing was compared of {mine}"
