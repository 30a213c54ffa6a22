"""The invariance judge on rewards: an implementation that breaks a symmetry of prompt groups is noticed."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.meta.invariance_cases import (
    GDPO,
    PLUS_BASELINE,
    RLOO,
    by_group,
    centred,
    components,
    given_weights,
    noticed,
    reward_case,
    value_of,
)


def test_a_centring_implementation_is_invariant():
    """Centring by group, exact on these values, shows no difference under any transformation."""
    for algorithm in (PLUS_BASELINE, RLOO):
        assert noticed(reward_case(algorithm), by_group(centred)) == set()


@pytest.mark.parametrize(
    ("algorithm", "score", "names"),
    [
        # The first member of a group gets four ulps more.
        (RLOO, lambda v, p: centred(v, p) * (1 + 2.0**-50 * (p == 0)), {"samples in reverse order"}),
        (PLUS_BASELINE, lambda v, p: abs(centred(v, p)), {"rewards negated"}),
        (PLUS_BASELINE, lambda v, p: centred(v, p) / (1.0 + 1e-6), set()),
        (PLUS_BASELINE, lambda v, p: centred(v, p) + 2.0**-30, {"rewards negated", "rewards doubled"}),
        (RLOO, lambda v, p: v[p] - sum(v) / (len(v) + 1), {"rewards shifted by 1"}),
        (RLOO, lambda v, p: centred(v, p) * max(v), {"rewards negated", "rewards doubled", "rewards shifted by 1"}),
    ],
)
def test_a_formula_without_the_symmetry_is_noticed(algorithm, score, names):
    """Order, sign, scale and shift: each is shown by the transformations that it breaks, and by no other."""
    assert noticed(reward_case(algorithm), by_group(score)) == names


def test_labels_neighbours_and_state_are_noticed():
    """A result that depends on a group's label, on the batch around it or on earlier calls is noticed."""

    def by_label(args, samples):
        raw, out = by_group(centred)(args, samples)
        return raw, [value + sample.group_index * 2.0**-40 for value, sample in zip(out, samples, strict=True)]

    assert "groups relabelled" in noticed(reward_case(PLUS_BASELINE), by_label)

    def whole_batch(args, samples):
        raw = [value_of(sample) for sample in samples]
        return raw, [value - sum(raw) for value in raw]

    names = noticed(reward_case(PLUS_BASELINE), whole_batch)
    assert {"batches concatenated, first", "batches concatenated, second"} <= names

    calls = itertools.count()

    def remembering(args, samples):
        raw, out = by_group(centred)(args, samples)
        return raw, [value + next(calls) * 1e-9 for value in out]

    assert "second call on two threads" in noticed(reward_case(PLUS_BASELINE), remembering)

    def by_threads(args, samples):
        raw, out = by_group(centred)(args, samples)
        return raw, [value * torch.get_num_threads() for value in out]

    assert noticed(reward_case(PLUS_BASELINE), by_threads) == {"second call on two threads"}


def test_dependence_on_the_order_of_groups_is_noticed():
    """A stage that treats the first group of the batch otherwise is noticed by order and interleaving."""

    def first_group(args, samples):
        raw, out = by_group(centred)(args, samples)
        first = samples[0].group_index
        factors = [2 if sample.group_index == first else 1 for sample in samples]
        return raw, [value * factor for value, factor in zip(out, factors, strict=True)]

    assert "groups in reverse order" in noticed(reward_case(PLUS_BASELINE), first_group)


def test_components_and_weights_are_noticed():
    """Weights by position instead of key, dropped, or normalised by their sum each show; the right weights do not."""
    case = reward_case(GDPO, gdpo_reward_weights=[2.0, 0.5])
    assert "components in reverse order" not in noticed(case, components(given_weights))
    assert "weights doubled" not in noticed(case, components(given_weights))

    def by_position(args):
        return dict(zip(sorted(args.gdpo_reward_keys), args.gdpo_reward_weights, strict=True))

    assert "components in reverse order" in noticed(case, components(by_position))
    assert "weights doubled" in noticed(case, components(lambda args: dict.fromkeys(args.gdpo_reward_keys, 1.0)))

    def normalised(args):
        weights = given_weights(args)
        return {key: weight / sum(weights.values()) for key, weight in weights.items()}

    names = noticed(case, components(normalised))
    assert {"weights doubled", "a flat component added"} <= names
