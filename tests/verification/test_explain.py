"""explain: one case laid open, with bits, distances and the place where subjects part."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from verification.cases import corpus
from verification.cases.case import Case
from verification.cli import main
from verification.explain import describe, describe_as_json, explain
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


def outcome(loss: float) -> Outcome:
    gradients = {f"grad.values[{index}]": torch.ones(len(item)) for index, item in enumerate(VALUES)}
    return Outcome(arrays={"loss": torch.tensor(loss), **gradients})


def test_the_place_and_the_distance_are_named():
    """Two results one ulp apart are shown in decimal and bits, with the distance and the exact value."""
    near = float(np.nextafter(np.float32(1.75), np.float32(2)))
    text = "\n".join(explain(CASE, {"live": outcome(near), "frozen": outcome(1.75), "golden": None}))
    assert "live and frozen: 1 of 1 differ, first at [], at most 1 ulps apart" in text
    assert "live 1.7500001 (0x3fe00001)  frozen 1.75 (0x3fe00000)" in text
    assert "exact 1.75" in text
    assert "golden: not there" in text
    assert "run it again: relax-verify check --case 'loss.reduce/grpo/laid-open'" in text


def test_equal_results_are_said_to_be_equal():
    """Without a difference each array says so."""
    text = "\n".join(explain(CASE, {"live": outcome(1.75), "frozen": outcome(1.75)}))
    assert text.count("live and frozen: the same bits") == 3


def test_failures_mutations_and_aliases_are_told():
    """A failure shows its message, a changed input its path, a shared tensor both names; shapes are compared first."""
    failed = Outcome(failure=Failure("ValueError", "no response"))
    odd = Outcome(
        arrays={"loss": torch.ones(2)}, mutated={"values[0]": torch.ones(2)}, aliases=frozenset({("loss", "values[0]")})
    )
    text = "\n".join(explain(CASE, {"live": failed, "frozen": odd, "golden": outcome(1.75)}))
    assert "live: failed with ValueError: no response" in text
    assert "frozen: 1 arrays; changed values[0]; shared: loss = values[0]" in text
    assert "loss: frozen float32 [2], golden float32 []" in text


def test_the_window_follows_the_difference():
    """In a long array the first differing element is among those shown."""
    inputs = {"log_probs": None, "values": [np.zeros(300, np.float32)]}
    case = Case("kl.estimate/grpo/long", "kl.estimate", "grpo", inputs)
    one, other = torch.zeros(300), torch.zeros(300)
    other[217] = 1.0
    outcomes = {"live": Outcome(arrays={"kl[0]": one}), "frozen": Outcome(arrays={"kl[0]": other})}
    text = "\n".join(explain(case, outcomes))
    assert "first at [217]" in text
    assert "[217] live 0 (0x00000000)  frozen 1 (0x3f800000)" in text


def test_the_description_holds_all_of_the_case():
    """Options, note, tags and every input stand in the description, in text and in strict JSON."""
    text = "\n".join(describe(CASE))
    for piece in ("calculate_per_token_loss = True", "a sum of three", "example", "values[0] float32 [2]: 0.5, 0.25"):
        assert piece in text
    inputs = {"values": [np.array([np.nan], np.float32)]}
    strange = Case("kl.estimate/grpo/nan", "kl.estimate", "grpo", inputs, error=("x",))
    loaded = json.loads(describe_as_json(strange), parse_constant=pytest.fail)
    assert loaded["inputs"]["values"][0]["values"] == ["nan"]
    assert "malformed" in "\n".join(describe(strange))


def test_bfloat16_is_described_by_its_numbers():
    """The bits that a case holds are shown as what they stand for."""
    inputs = {"logits": [np.array([[0x3FC0, 0xC000, 0xFF80]], np.uint16)], "tokens": [np.array([1])]}
    text = "\n".join(describe(Case("logprob.entropy/grpo/half", "logprob.entropy", "grpo", inputs)))
    assert "logits[0] bfloat16 [1, 3]: 1.5, -2.0, -inf" in text


def test_every_stage_can_be_explained(capsys):
    """One valid and one malformed case of each stage are explained without an error."""
    seen: dict[tuple[str, bool], str] = {}
    for case in corpus():
        seen.setdefault((case.stage, case.error is None), case.id)
    for (stage, valid), name in seen.items():
        assert main(["explain", name]) == 0
        text = capsys.readouterr().out
        assert text.startswith(name)
        assert stage in text
        assert ("live: failed with" in text) is not valid
        assert text.splitlines()[-1].startswith("judges: ")
        assert text.splitlines()[-1].endswith(" comparisons, 0 differences")
