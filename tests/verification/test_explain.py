"""explain: one case laid open, with bits, distances and the place where subjects part."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from verification.bundles import write_cases
from verification.cases import corpus
from verification.cases.case import Case
from verification.cli import main
from verification.examine import Examined
from verification.explaining import explanation as explaining
from verification.explaining.arrays import arrays
from verification.explaining.explanation import Explanation, Side, lay_open
from verification.explaining.recorded import Recorded
from verification.explaining.tables import sheets
from verification.goldens.compare import default_store
from verification.goldens.parse import GoldenFormatError
from verification.goldens.platform import platform_key
from verification.oracle import evaluate
from verification.report.document import Sheet
from verification.report.text import lines
from verification.revisions.checkout import Checkout
from verification.subjects.live import live_subject
from verification.subjects.outcome import Failure, Outcome

VALUES = [np.array([0.5, 0.25], dtype=np.float32), np.array([1.0], dtype=np.float32)]
CASE = Case(
    "loss.reduce/grpo/laid-open",
    "loss.reduce",
    "grpo",
    {"values": VALUES, "loss_masks": [np.ones_like(item) for item in VALUES]},
    {"calculate_per_token_loss": True},
    note="a sum of three",
    tags=("example",),
)
NAME = "loss.reduce/grpo/mean-holes"
EVERY = {case.id: case for case in corpus()}


def outcome(loss: float) -> Outcome:
    gradients = {f"grad.values[{index}]": torch.ones(len(item)) for index, item in enumerate(VALUES)}
    return Outcome(arrays={"loss": torch.tensor(loss), **gradients})


def laid_open(outcomes: dict[str, Outcome | None], case: Case = CASE) -> str:
    """The text on outcomes that are given, instead of run."""
    sides = tuple(Side(name, one, "" if one else "not there") for name, one in outcomes.items())
    return text(Explanation(case, sides, evaluate(case) or {}, Recorded("here"), judged={"live": Examined()}))


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


def test_the_place_and_the_distance_are_named():
    """Two results one ulp apart are shown in decimal and bits, with the distance and the exact value."""
    near = float(np.nextafter(np.float32(1.75), np.float32(2)))
    told = laid_open({"live": outcome(near), "frozen": outcome(1.75), "golden": None})
    assert "live and frozen: 1 of 1 differ, first at [], at most 1 ulps apart" in told
    assert "live: at most 1 ulps from the exact value" in told
    assert "frozen: at most 0 ulps from the exact value" in told
    assert "[]  1.7500001 (0x3fe00001)  1.75 (0x3fe00000)  1.7500000000000000000" in told
    assert "golden  not there" in told


def test_equal_results_share_a_column():
    """Subjects with the same bits are one column, whose head names them; others stand beside it."""
    told = laid_open({"live": outcome(1.75), "frozen": outcome(1.75), "mine": outcome(1.5), "golden": outcome(1.75)})
    loss, gradient = (part for part in told.split("\n\n") if part.startswith(("loss ", "grad.values[0]")))
    assert "live = frozen = golden and mine: 1 of 1 differ, first at [], at most 2.1e+06 ulps apart" in loss
    assert "mine is beyond the bound: " in loss
    assert "live = frozen = golden  mine" in loss
    assert "live = frozen = mine = golden: the same bits" in gradient


def test_every_pair_that_differs_has_its_distance():
    """Three results that differ pairwise have three distances, each between the right two."""
    near, far = (float(np.nextafter(np.float32(1.75), np.float32(2))), 1.75 + 2**-21)
    told = laid_open({"live": outcome(1.75), "frozen": outcome(near), "golden": outcome(far)})
    assert "live and frozen: 1 of 1 differ, first at [], at most 1 ulps apart" in told
    assert "live and golden: 1 of 1 differ, first at [], at most 4 ulps apart" in told
    assert "frozen and golden: 1 of 1 differ, first at [], at most 3 ulps apart" in told


def test_failures_mutations_and_aliases_are_told():
    """A failure shows its message, a changed input its path and new value, a shared tensor both names."""
    failed = Outcome(failure=Failure("ValueError", "no\nresponse"), mutated={"values[0]": torch.tensor([0.5])})
    odd = Outcome(
        arrays={"loss": torch.ones(2)},
        mutated={"values[0]": torch.tensor([2.0]), "args.kl_coef": torch.tensor(list(b"0.1"), dtype=torch.uint8)},
        aliases=frozenset({("loss", "values[0]")}),
    )
    told = laid_open({"live": failed, "frozen": odd, "golden": outcome(1.75)})
    assert r"live    failed with ValueError: no\nresponse; changed values[0]" in told
    assert "frozen  1 arrays; changed args.kl_coef, values[0]; shared: loss = values[0]" in told
    after = told.split("input values[0] after the call\n")[1].split("\n\n")[0].splitlines()
    assert [line.strip() for line in after] == [
        "live    float32 [1]: 0.5 (0x3f000000)",
        "frozen  float32 [1]: 2 (0x40000000)",
        "golden  untouched",
    ]
    assert "input args.kl_coef after the call\n  live = golden  untouched\n  frozen         0.1\n" in told


def test_what_has_another_shape_is_not_compared():
    """Arrays of another dtype or shape are named with theirs, and stand in no table with the others."""
    told = laid_open({"live": outcome(1.75), "frozen": Outcome(arrays={"loss": torch.ones(2)}), "golden": Outcome()})
    assert "frozen: float32 [2]" in told
    assert "golden: missing" in told
    assert "0x3fe00000" in told
    assert "1 (0x3f800000)  1 (0x3f800000)" not in told


def test_the_window_follows_the_first_difference():
    """In a long array the first element where any two differ is among those shown, not only where the first two do."""
    inputs = {"log_probs": None, "values": [np.zeros(300, np.float32)]}
    case = Case("kl.estimate/grpo/long", "kl.estimate", "grpo", inputs)
    one, other, third = torch.zeros(300), torch.zeros(300), torch.zeros(300)
    other[217] = third[120] = 1.0
    told = laid_open(
        {who: Outcome(arrays={"kl[0]": it}) for who, it in zip("abc", (one, other, third), strict=True)}, case
    )
    assert "a and b: 1 of 300 differ, first at [217]" in told
    assert "[120]  0 (0x00000000)  0 (0x00000000)  1 (0x3f800000)" in told
    assert "[217]  " not in told
    assert "288 of 300 elements are not shown" in told


def test_texts_are_compared_by_what_they_say():
    """A result that is no number shows who says what."""
    told = laid_open(
        {"live": Outcome(texts={"roles": "actor"}), "frozen": Outcome(texts={"roles": "critic"}), "golden": Outcome()}
    )
    assert "text roles\n  live    actor\n  frozen  critic\n  golden  missing" in told


def test_the_provenance_of_the_golden_is_told():
    """A recorded case names its file, and the baseline, tree and command of its recording."""
    case = next(case for case in EVERY.values() if case.error is not None)
    golden = lay_open(case).golden
    told = text(lay_open(case))
    assert golden.outcome is not None
    assert golden.path.endswith(f"/any/{case.id.split('/')[2]}.txt")
    assert {"baseline", "relax_tree", "corpus", "config", "torch", "threads", "command"} <= set(golden.recording)
    for said in (golden.path, golden.recording["baseline"], golden.recording["command"]):
        assert said in told
    assert len(golden.recording["baseline"]) == 40


def test_a_case_whose_inputs_changed_has_no_golden():
    """What was recorded from other inputs is not shown as if it answered these."""
    case = next(case for case in EVERY.values() if case.error is not None)
    changed = replace(case, options={**case.options, "kl_coef": 0.125})
    found = lay_open(changed)
    assert found.golden.outcome is None
    assert "recorded from other inputs than the case has now" in text(found)
    assert found.exit_code == 1


def test_a_golden_that_cannot_be_read_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    """A damaged golden leaves the rest of the explanation standing, and there is no verdict."""

    def damaged(*_):
        raise GoldenFormatError("some.txt:3: damaged")

    monkeypatch.setattr(type(default_store()), "read", damaged)
    monkeypatch.setattr(type(default_store()), "text", damaged)
    found = lay_open(EVERY[NAME])
    assert found.exit_code == 2
    told = text(found)
    assert "golden  cannot be read: some.txt:3: damaged" in told
    assert "bits against golden  GoldenFormatError: some.txt:3: damaged" in told
    assert "live = frozen: the same bits" in told


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


def test_a_case_of_a_bundle_is_explained(capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch):
    """--input takes a case that the corpus does not have: judged without a golden, and its command names the folder."""
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    folder = tmp_path / "bundle"
    write_cases(folder, [CASE])
    assert main(["explain", "--input", str(folder)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(CASE.id)
    assert "golden  not recorded: a case of a bundle" in told
    assert "live = frozen: the same bits" in told
    (command,) = [line.split() for line in told.splitlines() if line.startswith("  relax-verify ")]
    assert main(command[1:]) == 0
    assert capsys.readouterr().out == told
    (folder / "manifest.json").write_text("{}")
    assert main(["explain", "--input", str(folder)]) == 2
    assert str(folder) in capsys.readouterr().err


def test_the_commands_run_it_again(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """The printed commands are complete: they name the capability that was chosen, and give the same verdict."""
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    first, second = lay_open(EVERY[NAME]).commands
    assert first == f"ATEN_CPU_CAPABILITY=default relax-verify explain {NAME}"
    assert second == f"ATEN_CPU_CAPABILITY=default relax-verify check --case {NAME}"
    for command in (first, second):
        assert main(command.split()[2:]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "VERDICT equivalent"


def test_json_is_complete_and_strict(capsys: pytest.CaptureFixture[str]):
    """The JSON holds every element's value and bits of every subject, with no word that JSON does not have."""
    case = next(case for case in EVERY.values() if case.id == "kl.estimate/grpo/k3-nan")
    assert main(["explain", case.id, "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [side["name"] for side in found["subjects"]] == ["live", "frozen", "golden"]
    live = live_subject().run(case)
    assert live is not None
    told = found["subjects"][0]["outcome"]["arrays"]
    assert list(live.arrays) == list(told)
    for name, tensor in live.arrays.items():
        bits = [int(word, 16) for word in told[name]["bits"]]
        assert (tensor.view(torch.int32).view(-1).to(torch.int64) & 0xFFFFFFFF).tolist() == bits
        assert list(tensor.shape) == told[name]["shape"]
    assert found["golden"]["recording"] is None or found["golden"]["recording"]["platform"] == platform_key()
    assert found["judges"]["live"]["differences"] == []
    assert found["exit_code"] == 0


def test_the_page_is_written(tmp_path):
    """--html and --junit write the explanation beside the text."""
    page, suite = tmp_path / "case.html", tmp_path / "case.xml"
    assert main(["explain", NAME, "--html", str(page), "--junit", str(suite)]) == 0
    assert NAME in page.read_text()
    assert "the same bits" in page.read_text()
    assert NAME in suite.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["loss.reduce/grpo/mean-hole"], f"no case 'loss.reduce/grpo/mean-hole'; closest: {NAME}"),
        ([], "name a case; the corpus holds"),
        ([NAME, "--subject", "nobody"], "no subject 'nobody'"),
        (["policy.loss/grpo/plain@dp2", "--subject", "frozen"], "takes no --subject"),
    ],
)
def test_what_cannot_be_explained_is_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    """An unknown case names the closest, no case says what to name, an unknown subject what there is."""
    assert main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_text_that_no_pipe_takes_is_escaped():
    """A lone surrogate, a line break and a control character in an input cannot break the lines or the encoding."""
    case = replace(CASE, inputs={"samples": [{"prompt": "a\ud800\nb"}]}, error=("prompt",))
    (row,) = [line for line in laid_open({"live": None}, case).splitlines() if "samples[0]" in line]
    assert r"prompt='a\ud800\nb'" in row
    row.encode()


def test_columns_are_aligned_but_for_the_last():
    """Cells of one column start together; the last one may be long and pads nothing."""
    sheet = Sheet("t", ("", "n", "x"), (("a", "1", "long" * 50), ("bbb", "22", "-")), words=(0, 2))
    assert list(lines([sheet])) == ["t", "        n  x", "  a     1  " + "long" * 50, "  bbb  22  -"]


def spread() -> list[str]:
    """Of each stage, algorithm and kind of input (malformed or not) one case, and the largest case of each stage."""
    chosen: dict[tuple, str] = {}
    for case in EVERY.values():
        chosen.setdefault((case.stage, case.algorithm, case.error is None), case.id)
        for tag in case.tags:
            chosen.setdefault((case.stage, tag), case.id)
    return sorted(set(chosen.values()))


def test_a_spread_of_cases_can_be_explained(capsys: pytest.CaptureFixture[str]):
    """A case of each stage, algorithm and tag is explained in text that ends in the verdict, all inputs among it."""
    for name in spread():
        case = EVERY[name]
        assert main(["explain", name]) == 0, name
        told = capsys.readouterr().out
        assert told.startswith(f"{name}\n  stage      {case.stage}\n")
        assert ("live    failed with" in told) is (case.error is not None)
        assert told.splitlines()[-1] == "VERDICT equivalent"
        for given in case.inputs:
            assert given in told.split("\noutcomes\n")[0]
        told.encode()
    assert len(spread()) > 100


def test_every_array_of_an_outcome_is_grouped():
    """Each array of each subject is in exactly one group, whatever bits it has."""
    case = EVERY[NAME]
    found = lay_open(case)
    for array in arrays(case, found.results, found.exact):
        assert sorted(found.results) == sorted(who for group in array.groups for who in group.subjects)
