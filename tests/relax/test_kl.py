"""The KL estimators and the template of the advantages' shapes."""

from __future__ import annotations

import math
import re

import pytest
import torch

from relax.algorithms.formulas.kl import KL_KINDS, approx_kl, kl_of_batch, kl_per_response
from verification.cases.arguments import namespace
from verification.cases.integers import Integers
from verification.judges.bits import first_difference

KINDS = pytest.mark.parametrize("kind", KL_KINDS)


def log_probs(name: str, *lengths: int) -> list[torch.Tensor]:
    stream = Integers(name)
    return [torch.tensor(stream.quotients(length, -(6 << 18), 0, 18), dtype=torch.float32) for length in lengths]


def plain(d: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "k1":
        return d
    if kind == "k2":
        return d * d / 2
    result = (-d).exp() - 1 - (-d)
    return result.clamp(-10, 10) if kind == "low_var_kl" else result


def kl_args(kind: str, coefficient: float = 0.1):
    return namespace("grpo", kl_coef=coefficient, kl_loss_type=kind)


@KINDS
def test_each_kind_has_the_bits_of_its_formula(kind):
    """Every kind equals its straight-line expression to the bit, response by response."""
    ours, reference = log_probs("ours", 1, 7, 300), log_probs("reference", 1, 7, 300)
    got = kl_per_response(kl_args(kind), log_probs=ours, ref_log_probs=reference, values=None)
    assert len(got) == 3
    for result, p, q in zip(got, ours, reference, strict=True):
        assert first_difference(result, plain(p - q, kind)) is None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) - 0.5), ("low_var_kl", math.exp(-0.5) - 0.5)],
)
def test_the_direction_is_policy_over_reference(kind, expected):
    """With log p = -1 and log p_ref = -1.5 the estimates are those of d = +0.5."""
    got = approx_kl(torch.tensor([-1.0]), torch.tensor([-1.5]), kind)
    # k3 subtracts numbers near 1: two roundings of half an ulp of 1, 2**-24 each.
    assert got.item() == pytest.approx(expected, abs=2**-23)


@KINDS
def test_gradients_are_those_of_the_formula(kind):
    """The gradient is 1, d, and 1 - exp(-d), and it stops where low_var_kl is cut."""
    d = torch.tensor([0.75, -0.25, 2.0, -3.0])  # k3(-3) is 16.1, beyond the cut
    ours = (d - 2).requires_grad_()
    approx_kl(ours, torch.full_like(d, -2.0), kind).sum().backward()
    one_sided = 1 - torch.exp(-d)
    expected = {"k1": torch.ones(4), "k2": d, "k3": one_sided}.get(kind, one_sided * torch.tensor([1, 1, 1, 0]))
    # One exponential and two additions: within 2 ulps of the largest term, exp(3) = 20.
    assert torch.allclose(ours.grad, expected, rtol=0, atol=2 * 2**-19)


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 0.5 * (math.exp(3) - 4)), (2.0, 10.0)])
def test_low_var_kl_is_cut_after_the_importance_ratio(ratio, expected):
    """An estimate of 16.1 times 0.5 stays 8.04: cut first it would be 5; times 2 it is cut to 10."""
    got = approx_kl(torch.tensor([-4.0]), torch.tensor([-1.0]), "low_var_kl", torch.tensor([ratio]))
    assert got.item() == pytest.approx(expected, rel=2**-22)  # exp within an ulp, then three roundings


@KINDS
def test_an_importance_ratio_multiplies_each_token(kind):
    """Token t of response i is weighed by token t of ratio i."""
    ours, reference = log_probs("ours", 5, 2), log_probs("reference", 5, 2)
    ratios = [torch.tensor([0.5, 1.0, 2.0, 4.0, 0.25]), torch.tensor([8.0, 0.125])]
    got = kl_per_response(kl_args(kind), log_probs=ours, ref_log_probs=reference, values=None, importance_ratios=ratios)
    for result, p, q, ratio in zip(got, ours, reference, ratios, strict=True):
        expected = plain(p - q, "k3" if kind == "low_var_kl" else kind) * ratio
        if kind == "low_var_kl":
            expected = expected.clamp(-10, 10)
        assert first_difference(result, expected) is None


def test_half_precision_is_subtracted_in_float32():
    """bfloat16 log-probs are widened before the subtraction, so that a difference of 2**-9 next to 1 survives."""
    ours, reference = torch.tensor([-1.0], dtype=torch.bfloat16), torch.tensor([-0.99609375], dtype=torch.bfloat16)
    assert first_difference(approx_kl(ours, reference, "k1"), torch.tensor([-0.00390625])) is None
    assert approx_kl(ours, reference, "k2").item() == 0.00390625**2 / 2


def test_without_a_coefficient_the_template_is_zero_and_float32():
    """kl_coef 0 gives +0 of each log-prob's shape, whatever the reference holds."""
    ours = [tensor.bfloat16() for tensor in log_probs("ours", 3, 0, 2)]
    got = kl_per_response(kl_args("k1", 0.0), log_probs=ours, ref_log_probs=None, values=None)
    for result, length in zip(got, (3, 0, 2), strict=True):
        assert first_difference(result, torch.zeros(length)) is None


@pytest.mark.parametrize("missing", [None, []])
def test_without_log_probs_the_values_give_the_shapes(missing):
    """A batch that has only a critic's values takes their lengths, even where kl_coef is not 0."""
    got = kl_per_response(kl_args("k1"), log_probs=missing, ref_log_probs=None, values=[torch.ones(4), torch.ones(1)])
    assert [first_difference(result, torch.zeros(n)) for result, n in zip(got, (4, 1), strict=True)] == [None, None]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log_probs": None, "values": None}, "log_probs values"),
        ({"ref_log_probs": None}, "kl_coef 0.1 ref_log_probs --kl-coef"),
        ({"ref_log_probs": [torch.zeros(3)]}, "log_probs 2 ref_log_probs 1"),
        ({"ref_log_probs": [torch.zeros(3), torch.zeros(1)]}, "response 1 (2,) (1,)"),
        ({"importance_ratios": [torch.ones(1), torch.ones(2)]}, "response 0 (3,) (1,)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, words):
    """A missing list, a list of another length and an entry of another shape are errors that name both sides."""
    inputs = {"log_probs": log_probs("ours", 3, 2), "ref_log_probs": log_probs("reference", 3, 2), "values": None}
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words.split())):
        kl_per_response(kl_args("k1"), **{**inputs, **change})


def test_an_unknown_kind_lists_the_known_ones():
    """The message of another kind names it, every kind there is, and the option."""
    with pytest.raises(ValueError, match=r"'k4'.*k1, k2, k3, low_var_kl.*--kl-loss-type"):
        approx_kl(torch.zeros(1), torch.zeros(1), "k4")


def test_inputs_stay_as_they_were():
    """Neither list nor tensor is changed, and no result shares memory with an input."""
    ours, reference = log_probs("ours", 4), log_probs("reference", 4)
    before = [ours[0].clone(), reference[0].clone()]
    got = kl_per_response(kl_args("k1"), log_probs=ours, ref_log_probs=reference, values=None)
    assert first_difference(ours[0], before[0]) is None
    assert first_difference(reference[0], before[1]) is None
    assert got[0].data_ptr() not in (ours[0].data_ptr(), reference[0].data_ptr())


def test_the_columns_of_a_batch_by_their_precedence():
    """The policy's log-probs come before the rollout engine's, values tell only shapes, and without any it is None."""
    batch = {
        "log_probs": log_probs("ours", 3),
        "rollout_log_probs": log_probs("rollout", 3),
        "ref_log_probs": log_probs("reference", 3),
        "values": [torch.ones(3, dtype=torch.float64)],
    }

    def kl(*missing):
        given = {name: column for name, column in batch.items() if name not in missing}
        return kl_of_batch(kl_args("k1"), given)

    assert first_difference(kl()[0], batch["log_probs"][0] - batch["ref_log_probs"][0]) is None
    expected = batch["rollout_log_probs"][0] - batch["ref_log_probs"][0]
    assert first_difference(kl("log_probs")[0], expected) is None
    assert first_difference(kl("log_probs", "rollout_log_probs")[0], torch.zeros(3)) is None
    assert kl("log_probs", "rollout_log_probs", "values") is None
