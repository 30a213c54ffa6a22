"""The oracle's log-probs, entropies and gradients, by the same formulas in decimals and by hand."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
import torch

from tests.verification.oracle_readings import doubles_of, floats_of
from verification.cases import corpus
from verification.cases.case import Case
from verification.judges.rounding import judge_rounding
from verification.oracle import evaluate
from verification.subjects.live import live_subject

getcontext().prec = 60
FOUR = ("log_probs", "entropy", "grad.logits", "grad.logits.entropy")


def case_of(rows: np.ndarray, ids: list[int]) -> Case:
    """One response."""
    return Case(
        "oracle/log-probs", "logprob.entropy", "grpo", {"logits": [rows], "tokens": [np.array(ids, dtype=np.int64)]}
    )


def by_decimals(row: list[float], token: int) -> tuple[Decimal, Decimal, list[Decimal], list[Decimal]]:
    """log p, entropy and their gradients from the definitions, unshifted."""
    powers = [Decimal(x).exp() if x != -math.inf else Decimal(0) for x in row]
    total = sum(powers)
    shares = [power / total for power in powers]
    entropy = -sum(p * p.ln() for p in shares if p)
    log_prob = Decimal(row[token]) - total.ln()
    return (
        log_prob,
        entropy,
        [(v == token) - p for v, p in enumerate(shares)],
        [-p * (p.ln() + entropy) if p else Decimal(0) for p in shares],
    )


def test_by_decimals():
    """Each array equals its definition in decimals: peaked, flat, tied, far from zero and masked rows."""
    rows = np.array(
        [
            [0.5, -1.25, 3.0, 0.0],
            [2.0, 2.0, 2.0, 2.0],
            [-300.0, -299.5, -301.0, -300.0],
            [7.0, -math.inf, -7.0, -math.inf],
            [40.0, 0.0, -40.0, 39.0],
        ],
        dtype=np.float32,
    )
    ids = [2, 0, 1, 2, 2]
    exact = evaluate(case_of(rows, ids))
    assert {name.partition("[")[0] for name in exact} == set(FOUR)
    expected = [by_decimals(row, token) for row, token in zip(rows.tolist(), ids, strict=True)]
    for place, name in enumerate(FOUR):
        flat = [value for one in expected for value in (one[place] if place > 1 else [one[place]])]
        # reason: float() of either rounds once, and products of small differences keep all but a few digits of sixty.
        assert doubles_of(exact[f"{name}[0]"]) == pytest.approx([float(value) for value in flat], rel=1e-15, abs=1e-40)
    assert exact["log_probs[0]"].shape == (5,)
    assert exact["grad.logits[0]"].shape == (5, 4)


def test_a_uniform_row():
    """Eight equal logits: -log 8, log 8, gradients of 1/8 off the token, none of the entropy."""
    exact = evaluate(case_of(np.full((1, 8), -7.5, dtype=np.float32), [3]))
    assert floats_of(exact["log_probs[0]"]) == [-float(np.float32(math.log(8)))]
    assert floats_of(exact["entropy[0]"]) == [float(np.float32(math.log(8)))]
    assert floats_of(exact["grad.logits[0]"]) == [-0.125] * 3 + [0.875] + [-0.125] * 4
    assert max(abs(value) for value in doubles_of(exact["grad.logits.entropy[0]"])) < 1e-50


@pytest.mark.parametrize(
    ("dtype", "bits", "grid"),
    [("uint16", [0x3FC0, 0xC000], torch.bfloat16), ("float16", [0x3E00, 0xC000], torch.float16)],
)
def test_half_precision_is_read_and_gradients_are_held_to_its_ulps(dtype, bits, grid):
    """1.5 and -2 by their bits; results are float32, gradients are judged in the dtype of the logits."""
    rows = np.array([bits], dtype=np.uint16)
    exact = evaluate(case_of(rows if dtype == "uint16" else rows.view(np.float16), [0]))
    log_prob, entropy, gradient, of_entropy = by_decimals([1.5, -2.0], 0)
    expected = [[log_prob], [entropy], gradient, of_entropy]
    for name, values in zip(FOUR, expected, strict=True):
        found = exact[f"{name}[0]"]
        assert doubles_of(found) == pytest.approx([float(v) for v in values], rel=1e-15)  # reason: one rounding each
        kind = grid if name.startswith("grad") else torch.float32
        assert (found.dtype, found.grid) == (kind, kind)


def test_what_has_no_value_is_unjudged_alone():
    """NaN, +inf and a row of -inf leave their row unjudged; an impossible token its log-prob alone."""
    rows = np.zeros((5, 3), dtype=np.float32)
    rows[0, 1], rows[1, 1], rows[2], rows[3, 1] = math.nan, math.inf, -math.inf, -math.inf
    exact = evaluate(case_of(rows, [0, 0, 0, 1, 1]))
    counts = [exact[f"{name}[0]"].unjudged for name in FOUR]
    assert counts == [4, 3, 9, 9]
    assert exact["log_probs[0]"].values[3] is None
    assert exact["log_probs[0]"].values[4] is not None


def test_a_certain_token_leaves_no_room():
    """With a single possible entry every value is 0 at scale 0: an error of any size would be beyond the bound."""
    exact = evaluate(case_of(np.array([[-math.inf, 5.0]], dtype=np.float32), [1]))
    for name in FOUR:
        assert set(floats_of(exact[f"{name}[0]"])) == {0.0}
        assert set(exact[f"{name}[0]"].scales) == {0.0}


@pytest.mark.parametrize(
    ("rows", "ids"),
    [(np.zeros((2, 3), np.float32), [0, 3]), (np.zeros((2, 3), np.float32), [0]), (np.zeros(3, np.float32), [0])],
)
def test_malformed_input_has_no_value(rows, ids):
    """An id outside the vocabulary, a row too many and a missing dimension are no question for the oracle."""
    assert evaluate(case_of(rows, ids)) is None


@pytest.mark.parametrize("error", [2**-18, -(2**-18)])
def test_small_errors_are_noticed(error):
    """An offset of 2^-18 on any of the four arrays is beyond its bound in an ordinary case."""
    case = next(case for case in corpus() if case.id == "logprob.entropy/grpo/mixed")
    outcome = live_subject().run(case)
    assert all(found.agrees for found in judge_rounding(case, outcome))
    for name in outcome.arrays:
        shifted = {**outcome.arrays, name: outcome.arrays[name] + error * (1 + outcome.arrays[name].abs())}
        judged = judge_rounding(case, type(outcome)(arrays=shifted))
        assert [found.what for found in judged if not found.agrees] == [name]
