"""explain: one case laid open, with bits, distances and the place where subjects part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from verification.cases import corpus
from verification.cases.case import Case
from verification.examine import Examined
from verification.explaining.arrays import arrays
from verification.explaining.explanation import Explanation, Side, lay_open
from verification.explaining.recorded import Recorded
from verification.explaining.tables import sheets
from verification.goldens.compare import default_store
from verification.goldens.parse import GoldenFormatError
from verification.oracle import evaluate
from verification.report.document import Sheet
from verification.report.text import lines
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


def test_every_array_of_an_outcome_is_grouped():
    """Each array of each subject is in exactly one group, whatever bits it has."""
    case = EVERY[NAME]
    found = lay_open(case)
    for array in arrays(case, found.results, found.exact):
        assert sorted(found.results) == sorted(who for group in array.groups for who in group.subjects)
