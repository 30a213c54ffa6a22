"""Does the invariance judge notice? Small implementations, each with one dependence that it must not have."""

from __future__ import annotations

import itertools
import sys

import pytest
import torch

from tests.meta.invariance_cases import (
    GDPO,
    PLUS_BASELINE,
    REDUCE,
    RLOO,
    WHITENED,
    by_group,
    centred,
    components,
    given_weights,
    in_batches,
    mean,
    noticed,
    reward_case,
    whiten,
)
from verification.judges.thread_mode import flush_denormal, flushes_denormal
from verification.judges.transformation import IGNORED, Run, put_back


def flushed_apart(function):
    """The result of a call, changed in its last bits where the thread flushes subnormal numbers."""

    def call(args, *samples, **inputs):
        first, second = function(args, *samples, **inputs)
        tiny = sys.float_info.min / 2  # zero where they are flushed
        return first, [value * (1 + 2.0**-20 * (tiny == 0.0)) for value in second]

    return call


def test_flushed_subnormal_numbers_are_noticed():
    """An exact result that depends on the mode of the thread is noticed, a baseline's is not asked."""
    name = {"subnormal numbers flushed"}
    assert noticed(reward_case(RLOO), flushed_apart(by_group(centred))) == name
    assert noticed(reward_case(PLUS_BASELINE, exact_statistics=True), flushed_apart(by_group(centred))) == name
    assert noticed(WHITENED, flushed_apart(whiten(in_batches))) == name
    case = reward_case(GDPO, gdpo_reward_weights=[2.0, 0.5])
    assert name <= noticed(case, flushed_apart(components(given_weights)))
    assert noticed(reward_case(PLUS_BASELINE), flushed_apart(by_group(centred))) == set()


@pytest.mark.parametrize("before", [False, True])
def test_the_mode_of_the_thread_is_given_back(before):
    """Whatever the mode was, and whatever the run does, it is the same afterwards."""
    torch.set_flush_denormal(before)
    try:
        with flush_denormal() as possible:
            inside = flushes_denormal()
        assert (inside, flushes_denormal()) == (possible, before)
        with pytest.raises(ValueError, match="in between"), flush_denormal():
            raise ValueError("in between")
        assert flushes_denormal() is before
        noticed(reward_case(RLOO), by_group(centred))
        assert flushes_denormal() is before
    finally:
        torch.set_flush_denormal(False)


def test_one_nan_equals_another_but_not_in_a_second_call():
    """A NaN of another payload passes under a transformation; the very same call must give the very same NaN."""

    def with_nan(payload):
        def reduce(args, *, values, loss_masks, **_):
            nan = torch.tensor([payload(values)], dtype=torch.int32).view(torch.float32)[0]
            return mean(values, loss_masks, lambda v, m: (v * 0).sum()) + nan

        return reduce

    def by_length(values):
        return 0x7FC00000 + len(values)

    calls = itertools.count()
    assert noticed(REDUCE, with_nan(by_length)) == set()
    names = noticed(REDUCE, with_nan(lambda values: 0x7FC00000 + next(calls)))
    assert names == {"second call on two threads"}


def test_failure_on_transformed_input_is_noticed():
    """An implementation that fails on the transformed input alone differs from itself."""

    def fragile(args, samples):
        if samples[0].group_index != 4:
            raise ValueError("only group 4 comes first")
        return by_group(centred)(args, samples)

    assert "groups relabelled" in noticed(reward_case(PLUS_BASELINE), fragile)


def test_results_are_put_back_in_order():
    """Lists, vectors over tokens and vectors over items return to the old order, across runs; extras are dropped."""
    case = REDUCE
    first = {"x[0]": torch.tensor([1.0]), "x[1]": torch.tensor([2.0, 2.0]), "flat": torch.tensor([1.0, 2.0, 2.0])}
    second = {"x[0]": torch.tensor([3.0]), "x[1]": torch.empty(0), "flat": torch.tensor([3.0])}
    runs = [Run(case, (2, 0)), Run(case, (1, IGNORED))]
    joined = put_back([first, second], runs, [2, 1, 1])
    assert {name: tensor.tolist() for name, tensor in joined.items()} == {
        "x[2]": [1.0],
        "x[0]": [2.0, 2.0],
        "x[1]": [3.0],
        "flat": [2.0, 2.0, 3.0, 1.0],
    }
    joined = put_back([{"r": torch.tensor([5.0, 6.0])}], [Run(case, (1, 0))], [1, 1])
    assert joined["r"].tolist() == [6.0, 5.0]
