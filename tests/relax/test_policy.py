"""The policy stage: each objective's value, bits and gradient; sequence KL and OPSM; dispatch, order, refusals."""

from __future__ import annotations

import math
import re

import pytest
import torch

from relax.algorithms.formulas.ratio import clipped_is, ppo_clip, reinforce, soft_gate
from relax.algorithms.formulas.sequence import opsm_mask, sequence_level_kl
from relax.algorithms.policy import POLICY_LOSS_FNS, compute_policy_loss_for, policy_objective
from relax.algorithms.spec import ALGORITHM_SPECS, POLICY_LOSS_FN_IDS
from verification.cases.arguments import namespace
from verification.cases.integers import Integers
from verification.judges.bits import first_difference

CLIPS = {"eps_clip": 0.2, "eps_clip_high": 0.25}
ALGORITHMS = pytest.mark.parametrize("algorithm", sorted(ALGORITHM_SPECS))


def kl_of(*ratios: float) -> torch.Tensor:
    """ppo_kl whose ratio is ``ratios``, up to the rounding of log and exp."""
    return torch.tensor([-math.log(ratio) for ratio in ratios], requires_grad=True)


def batch(name: str, lengths: list[int]) -> dict[str, list[torch.Tensor]]:
    stream = Integers(name)

    def draw(low: int, high: int) -> list[torch.Tensor]:
        return [torch.tensor(stream.quotients(n, low, high, 18), dtype=torch.float32) for n in lengths]

    old = draw(-(4 << 18), -(1 << 17))
    new = [tokens + shift for tokens, shift in zip(old, draw(-(1 << 17), 1 << 17), strict=True)]
    masks = [torch.tensor(stream.quotients(n, 0, 1, 0), dtype=torch.float32) for n in lengths]
    return {
        "old_log_probs": old,
        "log_probs": [tokens.requires_grad_() for tokens in new],
        "advantages": draw(-(2 << 18), 2 << 18),
        "loss_masks": masks,
    }


def plainly(args, log_prob, ppo_kl, a):
    """The four objectives as one reads them in the baseline; ``clipfrac`` in float32."""
    ratio = (-ppo_kl).exp()
    kind = ALGORITHM_SPECS[args.advantage_estimator].policy_loss_fn
    if kind == "ppo_clip":
        l1, l2 = -ratio * a, -ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip_high) * a
        loss, clipfrac = torch.max(l1, l2), l2 > l1
        if args.eps_clip_c is not None:
            loss = torch.where(a < 0, torch.min(-args.eps_clip_c * a, loss), loss)
    elif kind == "soft_gate":
        tau = torch.where(a > 0, args.sapo_tau_pos, args.sapo_tau_neg)
        gate = torch.sigmoid(tau * (ratio - 1))
        loss, clipfrac = -((4 / tau) * gate * a), 4 * gate * (1 - gate) < 0.9
    elif kind == "clipped_is":
        low, high = 1 - args.eps_clip, 1 + args.eps_clip_high
        coefficient = torch.where(a >= 0, ratio.clamp(max=high), ratio.clamp(min=low)).detach()
        loss = -(coefficient * a * log_prob)
        clipfrac = ((a >= 0) & (ratio > high)) | ((a < 0) & (ratio < low))
    else:
        loss, clipfrac = -a * log_prob, torch.zeros_like(a)
    return loss, clipfrac.float()


@ALGORITHMS
@pytest.mark.parametrize("options", [{}, {"eps_clip_high": 0.28, "eps_clip_c": 1.3}, {"sapo_tau_neg": 3.0}], ids=str)
def test_bits_and_gradients_of_the_straight_line(algorithm, options):
    """Loss, clipfrac, ppo_kl and the gradient of the summed loss equal the written-out formulas to the bit."""
    args, given = namespace(algorithm, **options), batch("policy", [1, 37, 0, 400])
    loss, clipfrac, ppo_kl = policy_objective(args, **given)
    loss.sum().backward()
    got = [tokens.grad for tokens in given["log_probs"]]

    again = batch("policy", [1, 37, 0, 400])
    old, new = again["old_log_probs"], again["log_probs"]
    if ALGORITHM_SPECS[algorithm].kl_level == "sequence":
        parts = zip(old, new, again["loss_masks"], strict=True)
        kl = torch.cat([(((o - n) * m).sum() / m.sum().clamp(min=1)).expand(len(n)) for o, n, m in parts])
    else:
        kl = torch.cat(old) - torch.cat(new)
    expected, expected_clipfrac = plainly(args, torch.cat(new), kl, torch.cat(again["advantages"]))
    expected.sum().backward()
    assert first_difference(ppo_kl, kl) is None
    assert first_difference(loss, expected) is None
    assert first_difference(clipfrac, expected_clipfrac) is None
    assert all(first_difference(g, leaf.grad) is None for g, leaf in zip(got, new, strict=True))
    assert got[3].abs().max() > 0.1


def test_ppo_clip_by_hand():
    """Ratio 2 and 0.5 with A = +1 and -1: clipped only where the clip makes the loss larger."""
    ppo_kl, a = kl_of(2.0, 2.0, 0.5, 0.5), torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss, clipfrac = ppo_clip(ppo_kl, a, **CLIPS)
    # exp and log each within an ulp of 2.
    assert torch.allclose(loss, torch.tensor([-1.25, 2.0, -0.5, 0.8]), rtol=0, atol=2**-22)
    assert clipfrac.tolist() == [1.0, 0.0, 0.0, 1.0]
    loss.sum().backward()
    # d loss / d ppo_kl = ratio * A where unclipped, 0 where clipped.
    assert torch.allclose(ppo_kl.grad, torch.tensor([0.0, -2.0, 0.5, 0.0]), rtol=0, atol=2**-22)


def test_ppo_clip_shares_the_gradient_of_a_tie():
    """Inside the clip both branches are equal, and each passes half: together the whole gradient."""
    ppo_kl = torch.zeros(2, requires_grad=True)
    ppo_clip(ppo_kl, torch.tensor([3.0, -5.0]), **CLIPS)[0].sum().backward()
    assert ppo_kl.grad.tolist() == [3.0, -5.0]


def test_the_dual_clip_bounds_negative_advantages_alone():
    """Ratio 8: with A = -1 the loss stops at eps_clip_c = 3 and passes no gradient; A = +1 is clipped as ever."""
    ppo_kl, a = kl_of(8.0, 8.0, 2.0), torch.tensor([-1.0, 1.0, -1.0])
    loss, clipfrac = ppo_clip(ppo_kl, a, **CLIPS, eps_clip_c=3.0)
    assert torch.allclose(loss, torch.tensor([3.0, -1.25, 2.0]), rtol=0, atol=2**-22)  # as above
    assert clipfrac.tolist() == [0.0, 1.0, 0.0]
    loss.sum().backward()
    assert torch.allclose(ppo_kl.grad, torch.tensor([0.0, 0.0, -2.0]), rtol=0, atol=2**-22)  # as above


@pytest.mark.parametrize("bound", [1.0, 0.5, float("nan")])
def test_the_dual_clip_must_exceed_one(bound):
    """eps_clip_c at or below 1 would cut the ratio of an unchanged policy."""
    with pytest.raises(ValueError, match=f"eps_clip_c is {bound}.*must exceed 1"):
        ppo_clip(torch.zeros(1), torch.ones(1), **CLIPS, eps_clip_c=bound)


def test_soft_gate_by_hand():
    """At ratio 1 the gate is a half: loss -2 A / tau, gradient weight 1 whatever tau; far away it closes."""
    ppo_kl, a = kl_of(1.0, 1.0, 3.0), torch.tensor([1.0, -1.0, 1.0])
    loss, clipfrac = soft_gate(ppo_kl, a, tau_pos=1.0, tau_neg=2.0)
    gate = 1 / (1 + math.exp(-2))
    # Sigmoid within an ulp of 1 and the factor 4 before it: 4 * 2**-23.
    assert torch.allclose(loss, torch.tensor([-2.0, 1.0, -4 * gate]), rtol=0, atol=2**-21)
    assert clipfrac.tolist() == [0.0, 0.0, 1.0]  # 4 g (1 - g) is 1, 1 and 0.42
    loss.sum().backward()
    expected = torch.tensor([1.0, -1.0, 3 * 4 * gate * (1 - gate)])
    assert torch.allclose(ppo_kl.grad, expected, rtol=0, atol=2**-20)  # the ratio of 3 multiplies the error once more


def test_soft_gate_takes_tau_neg_at_zero():
    """tau_pos holds for A > 0 alone: at A = 0 the gate, and with it clipfrac, is that of tau_neg."""
    _, clipfrac = soft_gate(kl_of(2.0, 2.0), torch.tensor([0.0, 1e-30]), tau_pos=0.1, tau_neg=9.0)
    assert clipfrac.tolist() == [1.0, 0.0]


def test_clipped_is_by_hand():
    """The coefficient is cut above for A >= 0 and below for A < 0; only log_prob learns, beyond the bound too."""
    log_prob, ppo_kl = torch.full((5,), -0.5, requires_grad=True), kl_of(2.0, 0.5, 2.0, 0.5, 2.0)
    a = torch.tensor([1.0, 1.0, -1.0, -1.0, 0.0])
    loss, clipfrac = clipped_is(log_prob, ppo_kl, a, **CLIPS)
    weights = torch.tensor([1.25, 0.5, -2.0, -0.8, 0.0])  # coefficient * A
    assert torch.allclose(loss, weights * 0.5, rtol=0, atol=2**-22)  # exp and log each within an ulp of 2
    assert clipfrac.tolist() == [1.0, 0.0, 0.0, 1.0, 1.0]
    loss.sum().backward()
    assert torch.allclose(log_prob.grad, -weights, rtol=0, atol=2**-22)  # as above
    assert ppo_kl.grad is None


def test_reinforce_by_hand():
    """-A * log_prob, gradient -A, and nothing is ever clipped."""
    log_prob = torch.tensor([-0.5, -2.0], requires_grad=True)
    loss, clipfrac = reinforce(log_prob, torch.tensor([3.0, -1.5]))
    assert loss.tolist() == [1.5, -3.0]
    assert first_difference(clipfrac, torch.zeros(2)) is None
    loss.sum().backward()
    assert log_prob.grad.tolist() == [-3.0, 1.5]


@ALGORITHMS
def test_a_nan_stays_in_its_token(algorithm):
    """A NaN advantage makes its own token's loss NaN and no other's; nothing replaces it by a number."""
    given = batch("nan", [3, 2])
    given["advantages"][0][1] = float("nan")
    loss, clipfrac, _ = policy_objective(namespace(algorithm), **given)
    assert loss.isnan().tolist() == [False, True, False, False, False]
    assert not clipfrac.isnan().any()


def test_sequence_kl_by_hand():
    """(1 + 3) / 2 on three tokens, 0 on a masked response, -0.5 alone; each unmasked token gets half the gradient."""
    old = [torch.tensor([1.0, 9.0, 3.0]), torch.tensor([7.0, 7.0]), torch.tensor([0.0])]
    new = [torch.zeros(3, requires_grad=True), torch.zeros(2, requires_grad=True), torch.tensor([0.5])]
    masks = [torch.tensor([1.0, 0.0, 1.0]), torch.zeros(2), torch.ones(1)]
    got = sequence_level_kl(old, new, masks)
    assert got.tolist() == [2.0, 2.0, 2.0, 0.0, 0.0, -0.5]
    (got * torch.tensor([1.0, 10.0, 100.0, 1.0, 1.0, 1.0])).sum().backward()
    assert new[0].grad.tolist() == [-55.5, 0.0, -55.5]
    assert new[1].grad.tolist() == [0.0, 0.0]


def test_opsm_by_hand():
    """Only tokens with A < 0 of responses whose masked mean of (old - new) exceeds delta are dropped."""
    old = [torch.tensor([1.0, -9.0]), torch.tensor([0.5, 0.5]), torch.tensor([-1.0])]
    new = [torch.zeros(2, requires_grad=True), torch.zeros(2), torch.zeros(1)]
    advantages = [torch.tensor([-1.0, 2.0]), torch.tensor([-1.0, 0.0]), torch.tensor([-1.0])]
    masks = [torch.tensor([1.0, 0.0]), torch.ones(2), torch.ones(1)]
    got = opsm_mask(old, new, advantages, masks, 0.5)
    assert first_difference(got, torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0])) is None
    assert not got.requires_grad
    assert opsm_mask(old, new, advantages, masks, 0.25).tolist() == [0.0, 1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("algorithm", ["grpo", "gspo"])
def test_opsm_multiplies_loss_and_gradient(algorithm):
    """With the switch, dropped tokens lose loss and gradient, the rest keeps its bits, clipfrac is untouched."""
    plain = policy_objective(namespace(algorithm), **batch("opsm", [5, 9, 2]))
    given = batch("opsm", [5, 9, 2])
    masked = policy_objective(namespace(algorithm, use_opsm=True, opsm_delta=-0.25), **given)
    with torch.no_grad():
        mask = opsm_mask(*given.values(), -0.25)
    assert 0 < mask.sum() < 16
    assert first_difference(masked[0], plain[0] * mask) is None
    assert first_difference(masked[1], plain[1]) is None
    if algorithm == "grpo":  # a token's gradient is its own
        masked[0].sum().backward()
        gradient = torch.cat([tokens.grad for tokens in given["log_probs"]])
        assert gradient[mask == 0].abs().max() == 0
        assert gradient[mask == 1].abs().max() > 0


def test_opsm_comes_before_the_weights():
    """A dropped loss of 1e38 is 0 before a weight of 9 can make it infinite, and 0 * inf NaN."""
    given = {
        "old_log_probs": [torch.tensor([0.0])],
        "log_probs": [torch.tensor([-1.0])],
        "advantages": [torch.tensor([-3e38])],
        "loss_masks": None,
        "rollout_log_probs": [torch.tensor([-3.0])],
    }
    options = {"use_tis": True, "tis_clip": 9.0, "eps_clip": 0.9}
    assert policy_objective(namespace("grpo", **options), **given)[0].tolist() == [math.inf]
    assert policy_objective(namespace("grpo", use_opsm=True, **options), **given)[0].tolist() == [0.0]


def test_every_identifier_of_the_registry_has_its_function():
    """The table holds the registry's identifiers and no other."""
    assert set(POLICY_LOSS_FNS) == POLICY_LOSS_FN_IDS


@ALGORITHMS
def test_the_registry_chooses_the_objective(algorithm, monkeypatch):
    """The entry that the algorithm names is called once, with the arguments as they were given."""
    calls = []
    for name in POLICY_LOSS_FNS:
        monkeypatch.setitem(POLICY_LOSS_FNS, name, lambda args, name=name, **given: calls.append((name, args, given)))
    args = namespace(algorithm)
    given = {"log_probs": torch.zeros(1), "ppo_kl": torch.ones(1), "advantages": torch.full((1,), 2.0)}
    compute_policy_loss_for(args, **given)
    ((name, got_args, got),) = calls
    assert name == ALGORITHM_SPECS[algorithm].policy_loss_fn
    assert got_args is args
    assert all(got[key] is value for key, value in given.items())


@ALGORITHMS
def test_cut_responses_need_their_lengths(algorithm):
    """Under context parallelism the lengths say where a response is cut: the error names the missing ones."""
    args = namespace(algorithm, context_parallel_size=2)
    with pytest.raises(ValueError, match=r"context_parallel_size is 2 and total_lengths is None"):
        policy_objective(args, **batch("cp", [3]))
    with pytest.raises(ValueError, match=r"context_parallel_size is 2 and response_lengths is None"):
        policy_objective(args, **batch("cp", [3]), total_lengths=[4])


@ALGORITHMS
def test_a_batch_without_tokens(algorithm):
    """No response, and one of length 0, give three empty float32 tensors."""
    args = namespace(algorithm, use_opsm=True, use_tis=True)
    for lengths in ([], [0]):
        given = batch("empty", lengths)
        for result in policy_objective(args, **given, rollout_log_probs=given["old_log_probs"]):
            assert result.shape == (0,)
            assert result.dtype == torch.float32


@pytest.mark.parametrize("name", ["old_log_probs", "advantages", "loss_masks", "rollout_log_probs"])
def test_what_does_not_fit_is_refused_by_name(name):
    """A list of another length, and an entry of another shape, even where the joined lengths agree."""
    given = {**batch("fit", [2, 3]), "rollout_log_probs": None}
    words = f"log_probs holds 2 {name} holds 1"
    with pytest.raises(ValueError, match=".*".join(words.split())):
        policy_objective(namespace("gspo"), **{**given, name: [torch.ones(5)]})
    words = f"response 0 log_probs (2,) {name} (3,)"
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words.split())):
        policy_objective(namespace("gspo"), **{**given, name: [torch.ones(3), torch.ones(2)]})


@ALGORITHMS
def test_inputs_stay_as_they_were(algorithm):
    """No list or tensor is changed, and no result shares memory with one."""
    given = {**batch("still", [4, 2]), "rollout_log_probs": batch("other", [4, 2])["old_log_probs"]}
    before = {name: [tokens.detach().clone() for tokens in tensors] for name, tensors in given.items()}
    results = policy_objective(namespace(algorithm, use_opsm=True, use_tis=True), **given)
    inside = {tokens.untyped_storage().data_ptr() for tensors in given.values() for tokens in tensors}
    for name, tensors in before.items():
        assert all(first_difference(now, then) is None for now, then in zip(given[name], tensors, strict=True))
    assert inside.isdisjoint(result.untyped_storage().data_ptr() for result in results)
