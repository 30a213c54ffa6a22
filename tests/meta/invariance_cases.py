"""Small cases for the invariance judge, implementations that are invariant, and what it notices."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import torch

from verification.cases.case import Case
from verification.judges.invariance import judge_invariance
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


def mean(values, masks, per_response):
    return sum(per_response(value, mask) for value, mask in zip(values, masks, strict=True))


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
