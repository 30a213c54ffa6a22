"""The invariance judge on tokens: an implementation whose tokens, masks or batches see each other is noticed."""

from __future__ import annotations

import pytest
import torch

from tests.meta.invariance_cases import (
    POLICY,
    REDUCE,
    RETURNS,
    WHITENED,
    in_batches,
    mean,
    noticed,
    token_arrays,
    token_case,
    whiten,
)


def objective(args, *, old_log_probs, log_probs, advantages, loss_masks, **_):
    flat, old, advantage = torch.cat(log_probs), torch.cat(old_log_probs), torch.cat(advantages)
    return -(flat * advantage), flat.detach() > 0, old - flat


def test_a_tokenwise_objective_is_invariant():
    """-A * log p treats every token alone and is linear in A: nothing shows."""
    assert noticed(POLICY, objective) == set()


@pytest.mark.parametrize(
    ("loss", "names"),
    [
        (lambda p, a, m: -(p * a) + a.sum() * 0 + p[0], {"responses in reverse order", "split into micro-batches"}),
        (lambda p, a, m: -(p * a) * (p * m).sum() / 4, {"responses in reverse order", "split into micro-batches"}),
        (lambda p, a, m: -(p * a.clamp(max=1.0)), {"advantages doubled"}),
        (lambda p, a, m: -(p * a) + p.min().detach() * 2.0**-9, {"contents of excluded tokens"}),
    ],
)
def test_tokens_that_see_each_other_are_noticed(loss, names):
    """A dependence on other responses, on the scale of advantages or on excluded tokens is noticed."""

    def planted(args, *, old_log_probs, log_probs, advantages, loss_masks, **_):
        flat, old = torch.cat(log_probs), torch.cat(old_log_probs)
        return loss(flat, torch.cat(advantages), torch.cat(loss_masks)), flat.detach() > 0, old - flat

    found = noticed(POLICY, planted)
    assert names & found


@pytest.mark.parametrize(
    ("per_response", "names"),
    [
        (lambda v, m: (v * m).sum() / m.sum().clamp(min=1), set()),
        (lambda v, m: v.sum() / m.sum().clamp(min=1), {"contents of excluded tokens"}),
        (lambda v, m: (v * m).sum() / m.sum().clamp(min=1) + 1.0, {"an empty response added", "values doubled"}),
        (lambda v, m: (v * v * m).sum(), {"values doubled"}),
    ],
)
def test_reducers_are_noticed(per_response, names):
    """A mask forgotten in the numerator, a constant and a square each show; the sample mean does not."""

    def reduce(args, *, values, loss_masks, **_):
        return mean(values, loss_masks, per_response)

    found = noticed(REDUCE, reduce)
    assert names <= found
    assert bool(names) == bool(found)


def test_without_masks_every_token_is_included():
    """A reducer that is given no masks is shown everything but excluded tokens, and a constant is still noticed."""
    case = token_case("loss.reduce", "grpo", values=token_arrays(0.5), loss_masks=None)

    def reduce(constant):
        return lambda args, *, values, loss_masks, **_: sum(item.sum() for item in values) + constant

    assert noticed(case, reduce(0.0)) == set()
    assert noticed(case, reduce(1.0)) == {"values doubled"}


def test_batches_are_noticed():
    """Whitening over the rollout instead of each optimizer batch, or weighted by tokens, shows; by batch does not."""
    assert noticed(WHITENED, whiten(in_batches)) == set()
    assert "each batch alone" in noticed(WHITENED, whiten(lambda rewards, sizes: [range(len(rewards))]))

    def by_content(args, *, kl, **inputs):
        made, again = whiten(in_batches)(args, kl=kl, **inputs)
        return [item + other * 0 for item, other in zip(made, kl, strict=True)], again

    assert noticed(WHITENED, by_content) == {"contents of kl"}


def test_excluded_kl_is_noticed():
    """Returns that let the KL of excluded tokens in are noticed, those that multiply by the mask are not."""

    def returns(mask_used):
        def estimate(args, *, rewards, kl, loss_masks, **_):
            made = []
            for reward, item, mask in zip(rewards, kl, loss_masks, strict=True):
                made.append(torch.full_like(item, reward) - (item * mask if mask_used else item).sum())
            return made, list(made)

        return estimate

    assert noticed(RETURNS, returns(True)) == set()
    assert noticed(RETURNS, returns(False)) == {"contents of excluded tokens"}
