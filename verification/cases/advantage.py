"""Named cases of ``advantage.estimate`` for the algorithms whose advantage belongs to one response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.cases.families import BROADCAST, required_options
from verification.cases.integers import Integers
from verification.cases.tokens import MASK_KINDS, masks, noise, other_masks

PROMPT_LENGTH = 5

MIXED = (7, 1, 12, 2)
WITH_EMPTY = (4, 0, 3)


def advantage_cases() -> Iterator[Case]:
    """All of them."""
    yield from broadcast()
    yield from masked_broadcast()
    yield from returns()
    yield from gae()
    yield from gae_in_float64()
    yield from kinds_of_masks()


def advantage_case(
    algorithm: str,
    rest: str,
    rewards: Sequence[Any] | None,
    kl: Sequence[np.ndarray],
    *,
    loss_masks: Sequence[np.ndarray] | None = None,
    values: Sequence[np.ndarray] | None = None,
    mini_batch_sizes: Any = None,
    error: tuple[str, ...] | None = None,
    note: str = "",
    **options: Any,
) -> Case:
    """A case of ``advantage.estimate``; the lengths follow from ``kl``."""
    inputs: dict[str, Any] = {
        "rewards": rewards,
        "kl": kl,
        "loss_masks": loss_masks,
        "response_lengths": [len(array) for array in kl],
        "total_lengths": [PROMPT_LENGTH + len(array) for array in kl],
        "values": values,
        "padded_total_lengths": None,
        "mini_batch_sizes": mini_batch_sizes,
    }
    options = {**required_options(algorithm), **options}
    identity = f"advantage.estimate/{algorithm}/{rest}"
    return Case(identity, "advantage.estimate", algorithm, inputs, options, error, note)


def rewards_for(stream: Integers, count: int) -> list[float]:
    """Rewards as the reward stage gives them: float32 values, as Python floats."""
    return [float(np.float32(value)) for value in stream.quotients(count, -2 << 20, 2 << 20, 20)]


def broadcast() -> Iterator[Case]:
    """The reward at each token; what the KL holds is not looked at."""
    for algorithm in BROADCAST:
        stream = Integers(f"advantage/broadcast/{algorithm}")
        rewards = rewards_for(stream, 4)
        yield advantage_case(algorithm, "mixed", rewards, noise(stream, MIXED))
        yield advantage_case(
            algorithm, "masked", rewards, noise(stream, MIXED), loss_masks=masks("holes", stream, MIXED)
        )
        yield advantage_case(algorithm, "empty-response", rewards[:3], noise(stream, WITH_EMPTY))
        yield advantage_case(algorithm, "one-token", [0.1], noise(stream, (1,)))
        yield advantage_case(algorithm, "double-rewards", [0.1, -1 / 3, 1e-40], noise(stream, (2, 2, 2)))
    odd = [np.array([np.nan, np.inf], dtype=np.float32), np.array([-np.inf], dtype=np.float32)]
    yield advantage_case("grpo", "nan-kl", [0.5, -0.5], odd, kl_coef=0.1)
    yield advantage_case("grpo", "nan-reward", [float("nan"), -0.0, float("inf")], noise(Integers("nan"), (2, 2, 1)))
    yield advantage_case("grpo", "long", [0.3, -0.7], noise(Integers("long"), (600, 257)))


def masked_broadcast() -> Iterator[Case]:
    """The reward at each unmasked token."""
    algorithm = "reinforce_plus_plus_baseline"
    for kind in (*MASK_KINDS, "zero"):
        stream = Integers(f"advantage/masked/{kind}")
        yield advantage_case(
            algorithm, f"mask-{kind}", rewards_for(stream, 4), noise(stream, MIXED),
            loss_masks=masks(kind, stream, MIXED),
        )  # fmt: skip
    stream = Integers("advantage/masked")
    yield advantage_case(algorithm, "no-mask", rewards_for(stream, 4), noise(stream, MIXED))
    yield advantage_case(
        algorithm, "empty-response", [0.5, -0.5, 0.1], noise(stream, WITH_EMPTY),
        loss_masks=masks("full", stream, WITH_EMPTY),
    )  # fmt: skip
    yield advantage_case(
        algorithm, "negative-zero", [-1.0, -0.0], noise(stream, (3, 3)), loss_masks=masks("first", stream, (3, 3))
    )


def returns() -> Iterator[Case]:
    """REINFORCE++: discounted sums of the KL penalty, and the reward at the last unmasked token."""
    algorithm = "reinforce_plus_plus"
    for kind in MASK_KINDS:
        for gamma in (0.0, 0.9, 1.0):
            for kl_coef in (0.0, 0.1):
                stream = Integers(f"advantage/returns/{kind}")
                yield advantage_case(
                    algorithm, f"mask-{kind}-gamma{gamma}-kl{kl_coef}", rewards_for(stream, 4), noise(stream, MIXED),
                    loss_masks=masks(kind, stream, MIXED), gamma=gamma, kl_coef=kl_coef,
                )  # fmt: skip
    for length in (1, 2, 127, 128, 129, 257):
        stream = Integers(f"advantage/returns/{length}")
        yield advantage_case(
            algorithm, f"length-{length}", rewards_for(stream, 2), noise(stream, (length, 3)),
            loss_masks=masks("holes", stream, (length, 3)), gamma=0.9, kl_coef=0.05,
        )  # fmt: skip
    stream = Integers("advantage/returns")
    full, kl = masks("full", stream, MIXED), noise(stream, MIXED)
    rewards = rewards_for(stream, 4)
    yield advantage_case(algorithm, "no-mask", rewards, kl, gamma=0.9, kl_coef=0.1)
    yield advantage_case(algorithm, "gamma0.99-kl0.001", rewards, kl, loss_masks=full, gamma=0.99, kl_coef=0.001)
    yield advantage_case(algorithm, "negative-kl", rewards, kl, loss_masks=full, gamma=1.0, kl_coef=-0.1)
    yield advantage_case(
        algorithm, "empty-response", rewards[:3], noise(stream, WITH_EMPTY),
        loss_masks=masks("full", stream, WITH_EMPTY), gamma=0.9, kl_coef=0.1,
    )  # fmt: skip
    zero = [*full[:2], np.zeros(12, dtype=np.float32), full[3]]
    yield advantage_case(algorithm, "mask-zero", rewards, kl, loss_masks=zero, gamma=0.9, error=("response 2",))
    short = [full[0], full[1], full[2][:5], full[3]]
    yield advantage_case(algorithm, "mask-short", rewards, kl, loss_masks=short, error=("response 2", "5", "12"))


def gae() -> Iterator[Case]:
    """PPO: generalised advantage estimation in chunks of 128 tokens."""
    for gamma in (0.0, 0.9, 1.0):
        for lambd in (0.0, 0.95, 1.0):
            for kl_coef in (0.0, 0.1):
                stream = Integers("advantage/gae")
                yield advantage_case(
                    "ppo", f"gamma{gamma}-lambd{lambd}-kl{kl_coef}", rewards_for(stream, 4), noise(stream, MIXED),
                    values=noise(stream, MIXED), gamma=gamma, lambd=lambd, kl_coef=kl_coef,
                )  # fmt: skip
    for length in (1, 2, 127, 128, 129, 257):
        for gamma, lambd in ((0.99, 0.95), (1.0, 1.0), (0.9, 0.0)):
            stream = Integers(f"advantage/gae/{length}")
            lengths = (length, 3)
            yield advantage_case(
                "ppo", f"length-{length}-gamma{gamma}-lambd{lambd}", rewards_for(stream, 2), noise(stream, lengths),
                values=noise(stream, lengths), gamma=gamma, lambd=lambd, kl_coef=0.05,
            )  # fmt: skip
    stream = Integers("advantage/gae/more")
    rewards = rewards_for(stream, 4)
    kl, values = noise(stream, MIXED), noise(stream, MIXED)
    yield advantage_case(
        "ppo", "masked", rewards, kl, values=values, loss_masks=masks("holes", stream, MIXED), gamma=0.9, lambd=0.95,
        note="the mask is not part of GAE",
    )  # fmt: skip
    yield advantage_case("ppo", "single", rewards[:1], kl[:1], values=values[:1], gamma=0.9, lambd=0.95, kl_coef=0.1)
    yield advantage_case(
        "ppo", "empty-response", rewards[:3], noise(stream, WITH_EMPTY), values=noise(stream, WITH_EMPTY), gamma=0.9,
        lambd=0.95, error=("response 1",),
    )  # fmt: skip


def gae_in_float64() -> Iterator[Case]:
    """PPO with a critic of double precision: rewards and KL are float32 still, the rest is in the values' dtype."""
    stream = Integers("advantage/gae/float64")
    rewards, kl = rewards_for(stream, 4), noise(stream, MIXED)
    values = [array.astype(np.float64) / 3 for array in noise(stream, MIXED)]  # doubles that are no float32
    for gamma, lambd, kl_coef in ((0.9, 0.95, 0.1), (1.0, 1.0, 0.0), (0.99, 0.0, 0.05), (0.0, 0.5, 0.1)):
        yield advantage_case(
            "ppo", f"float64-gamma{gamma}-lambd{lambd}-kl{kl_coef}", rewards, kl, values=values, gamma=gamma,
            lambd=lambd, kl_coef=kl_coef,
        )  # fmt: skip
    for length in (1, 128, 129, 257):
        stream = Integers(f"advantage/gae/float64/{length}")
        lengths = (length, 3)
        values = [array.astype(np.float64) / 7 for array in noise(stream, lengths)]
        yield advantage_case(
            "ppo", f"float64-length-{length}", rewards_for(stream, 2), noise(stream, lengths), values=values,
            gamma=0.99, lambd=0.95, kl_coef=0.05,
        )  # fmt: skip
    near = [1.0 + np.arange(n, dtype=np.float64) * 2.0**-40 for n in (4, 2)]
    yield advantage_case(
        "ppo", "float64-below-float32", [0.5, -0.5], noise(stream, (4, 2)), values=near, gamma=1.0, lambd=1.0,
        note="values whose differences float32 does not hold",
    )  # fmt: skip


def kinds_of_masks() -> Iterator[Case]:
    """Masks of integers and booleans, for the two formulas that read them."""
    lengths = (7, 1, 12, 2)
    stream = Integers("advantage/mask/kinds")
    kl, rewards = noise(stream, lengths), rewards_for(stream, 4)
    for kind, other in other_masks(stream, lengths):
        for algorithm in ("reinforce_plus_plus", "reinforce_plus_plus_baseline"):
            if other is not None:  # without masks: "no-mask"
                yield advantage_case(algorithm, f"mask-{kind}", rewards, kl, loss_masks=other, gamma=0.9, kl_coef=0.1)
