"""Does the invariance judge notice? Small implementations, each with one dependence that it must not have."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from verification.cases.case import Case
from verification.judges.invariance import judge_invariance
from verification.judges.thread_mode import flush_denormal, flushes_denormal
from verification.judges.transformation import IGNORED, Run, put_back
from verification.subjects.in_process import Implementation

REWARDS = [0.5, 1.0, -2.0, 0.25, 3.0, 3.0, 1.5, -1.0]
LENGTHS = [3, 1, 4]
PLUS_BASELINE, GDPO, RLOO = "reinforce_plus_plus_baseline", "gdpo", "rloo"


def reward_case(algorithm: str, **options) -> Case:
    labels = [4, 4, 7, 7, 4, 4, 7, 7]
    if algorithm == GDPO:
        options = {"gdpo_reward_keys": ["a", "b"], **options}
        rewards = [{"a": value, "b": value * value} for value in REWARDS]
    else:
        rewards = REWARDS
    samples = [{"reward": reward, "group_index": label} for reward, label in zip(rewards, labels, strict=True)]
    options = {"n_samples_per_prompt": 4, **options}
    return Case(f"reward.normalize/{algorithm}/planted", "reward.normalize", algorithm, {"samples": samples}, options)


def token_arrays(scale: float) -> list[np.ndarray]:
    counter = itertools.count(1)
    return [np.array([next(counter) * scale for _ in range(n)], dtype=np.float32) for n in LENGTHS]


MASKS = [np.array(mask, dtype=np.float32) for mask in ([1, 0, 1], [1], [0, 1, 1, 0])]


def token_case(stage: str, algorithm: str, **inputs) -> Case:
    return Case(f"{stage}/{algorithm}/planted", stage, algorithm, {"loss_masks": MASKS, **inputs})


POLICY = token_case(
    "policy.loss",
    "grpo",
    old_log_probs=token_arrays(-0.25),
    log_probs=token_arrays(-0.375),
    advantages=token_arrays(0.5),
)
REDUCE = token_case("loss.reduce", "grpo", values=token_arrays(0.5))
WHITENED = token_case(
    "advantage.estimate",
    GDPO,
    rewards=[0.5, 1.5, -1.0],
    kl=token_arrays(0.125),
    response_lengths=LENGTHS,
    total_lengths=LENGTHS,
    mini_batch_sizes=[2, 1],
)
RETURNS = token_case(
    "advantage.estimate",
    "reinforce_plus_plus",
    rewards=[0.5, 1.5, -1.0],
    kl=token_arrays(0.125),
    response_lengths=LENGTHS,
    total_lengths=LENGTHS,
)


def noticed(case: Case, function) -> set[str]:
    """The transformations under which the implementation gave itself away."""
    call = {
        "reward.normalize": "post_process_rewards",
        "policy.loss": "policy_objective",
        "loss.reduce": "reduce_loss",
        "advantage.estimate": "compute_advantages_and_returns",
    }[case.stage]
    subject = Implementation("planted", SimpleNamespace(**{call: function}))
    outcome = subject.run(case)
    assert outcome.failure is None, outcome.failure
    return {one.against for one in judge_invariance(case, outcome, subject.run) if not one.agrees}


def value_of(sample) -> float:
    reward = sample.reward
    return reward["a"] + reward["b"] if isinstance(reward, dict) else reward


def by_group(score):
    """A reward stage that centres each group with ``score(values, position in the group)``."""

    def normalize(args, samples):
        raw = [value_of(sample) for sample in samples]
        groups: dict[int, list[int]] = {}
        for position, sample in enumerate(samples):
            groups.setdefault(sample.group_index, []).append(position)
        out = [0.0] * len(samples)
        for members in groups.values():
            for place, position in enumerate(members):
                out[position] = score([raw[i] for i in members], place)
        return raw, out

    return normalize


def centred(values, place):
    return values[place] - sum(values) / len(values) + 0.0


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


def components(weigh):
    """A combination of centred components ``a`` and ``b``; ``weigh`` maps the options to weights by key."""

    def normalize(args, samples):
        weights = weigh(args)
        keys = list(args.gdpo_reward_keys)

        def score(rows, place):
            return (
                sum(
                    weights[key] * (rows[place][key] - sum(row[key] for row in rows) / len(rows))
                    for key in sorted(keys)
                )
                + 0.0
            )

        raw, _ = by_group(centred)(args, samples)
        groups: dict[int, list[int]] = {}
        for position, sample in enumerate(samples):
            groups.setdefault(sample.group_index, []).append(position)
        out = [0.0] * len(samples)
        for members in groups.values():
            rows = [samples[i].reward for i in members]
            for place, position in enumerate(members):
                out[position] = float(np.float32(score(rows, place)))
        return raw, out

    return normalize


def given_weights(args):
    return dict(zip(args.gdpo_reward_keys, args.gdpo_reward_weights or [1.0] * len(args.gdpo_reward_keys), strict=True))


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


def mean(values, masks, per_response):
    return sum(per_response(value, mask) for value, mask in zip(values, masks, strict=True))


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


def whiten(pool):
    """Centring over ``pool(rewards, sizes)``: a list of index lists, one a batch."""

    def estimate(args, *, rewards, kl, mini_batch_sizes, **_):
        out = [0.0] * len(rewards)
        for members in pool(rewards, mini_batch_sizes):
            for i in members:
                out[i] = rewards[i] - sum(rewards[j] for j in members) / len(members) + 0.0
        made = [torch.ones_like(item) * value for item, value in zip(kl, out, strict=True)]
        return made, list(made)

    return estimate


def in_batches(rewards, sizes):
    bounds = [0, *itertools.accumulate(sizes)]
    return [range(start, end) for start, end in itertools.pairwise(bounds) if end > start]


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
