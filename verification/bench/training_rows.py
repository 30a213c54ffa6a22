"""What the registry and GDPO add to a training step, as shares of the step that is timed beside them.

The step is that of examples/gdpo in one process: without transport and without processes it is shorter than a real
one, so that the shares are larger.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch

from verification.bench.example import ROOT, Example, options, rewarded, with_advantages
from verification.bench.paired import Row, share

MOST = 1.0  # per cent of a step
ROUNDS = 11


def training_rows() -> Iterator[Row]:
    """Every row that takes the example; `verification.bench.example.missing` says whether it is there."""
    from relax.backends.megatron.ranks import ranks

    sys.path.append(str(ROOT))  # the example's reward function is imported by its name
    with ranks():
        example = Example(options())
        yield gdpo(example)
        yield registry(example)


def gdpo(example: Example) -> Row:
    """GDPO's rewards, metrics and advantages against GRPO's of one reward, on the same rollout."""
    samples = example.sample()
    columns = rewarded(example.args, samples)
    log_probs = example.log_probs(columns)

    def stages(args: Namespace) -> dict[str, Any]:
        return with_advantages(args, {**rewarded(args, samples), "log_probs": log_probs})

    one_reward = Namespace(**{**vars(example.args), "advantage_estimator": "grpo"})
    return share(
        f"GDPO: rewards, metrics, advantages of {len(samples)} samples",
        lambda: stages(example.args),
        "the same of GRPO",
        lambda: stages(one_reward),
        example.step,
        target=MOST,
        rounds=ROUNDS,
    )


def registry(example: Example) -> Row:
    """The stages by the algorithm's identifiers against the functions that these name, called at once."""
    from relax.algorithms.advantages import compute_advantages_and_returns
    from relax.algorithms.collective import collective_for
    from relax.algorithms.exact import whiten_segments
    from relax.algorithms.formulas.broadcast import broadcast
    from relax.algorithms.formulas.ratio import ppo_clip
    from relax.algorithms.policy import compute_policy_loss_for
    from relax.algorithms.reward_inputs import finite_number, picked_rewards
    from relax.algorithms.rewards import combine_components
    from relax.rollout.post_process import post_process_rewards

    args, samples = example.args, example.sample()
    log_probs = example.log_probs(rewarded(args, samples))
    kl = [torch.zeros_like(of_response) for of_response in log_probs]
    whole, sizes = torch.cat(log_probs), [args.global_batch_size] * (len(samples) // args.global_batch_size)
    new, difference = whole.split(len(whole) // 4 + 1), torch.zeros_like(whole).split(len(whole) // 4 + 1)

    def by_name() -> list[torch.Tensor]:
        _, rewards = post_process_rewards(args, samples)
        advantages, _ = compute_advantages_and_returns(args, rewards=rewards, kl=kl, mini_batch_sizes=sizes)
        parts = torch.cat(advantages).split(len(whole) // 4 + 1)
        return [
            compute_policy_loss_for(args, log_probs=one, ppo_kl=other, advantages=part)[0]
            for one, other, part in zip(new, difference, parts, strict=True)
        ]

    def at_once() -> list[torch.Tensor]:
        raw = picked_rewards(samples, args.reward_key)
        [finite_number(value, args.reward_key, samples, position) for position, value in enumerate(raw)]
        rewards = torch.as_tensor(combine_components(args, samples, ()), dtype=torch.float32)
        scores = whiten_segments(rewards, sizes, collective=collective_for(None), responses=len(kl))
        parts = torch.cat(broadcast(scores, kl)[0]).split(len(whole) // 4 + 1)
        clip = {"eps_clip": args.eps_clip, "eps_clip_high": args.eps_clip_high, "eps_clip_c": args.eps_clip_c}
        return [ppo_clip(other, part, **clip)[0] for other, part in zip(difference, parts, strict=True)]

    if not torch.equal(torch.cat(by_name()), torch.cat(at_once())):
        raise AssertionError("the registry's functions and those called at once do not compute the same")
    return share(
        "registry: reward, advantage and loss stage by name",
        by_name,
        "the same functions called at once",
        at_once,
        example.step,
        target=MOST,
        rounds=ROUNDS,
        calls=10,
    )
