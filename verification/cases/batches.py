"""Named cases of ``advantage.estimate`` for GDPO: one vote a sample, whitened within each optimizer batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verification.cases.advantage import advantage_case, rewards_for
from verification.cases.case import Case
from verification.cases.integers import Integers
from verification.cases.reward_columns import FINITE, FLOAT32_MAX, Column
from verification.cases.tokens import noise


def batch_cases() -> Iterator[Case]:
    """All of them."""
    yield from columns()
    yield from edges()
    yield from plans()
    yield from refusals()


def batch_case(
    rest: str,
    rewards: Any,
    sizes: Any,
    *,
    lengths: Sequence[int] | None = None,
    error: tuple[str, ...] | None = None,
    note: str = "",
    **more: Any,
) -> Case:
    """A GDPO case of rewards and a segment plan; responses of one to five tokens unless ``lengths`` are given."""
    lengths = [1 + position % 5 for position in range(len(rewards))] if lengths is None else lengths
    kl = [np.zeros(length, dtype=np.float32) for length in lengths]
    return advantage_case("gdpo", rest, rewards, kl, mini_batch_sizes=sizes, error=error, note=note, **more)


def as_float32(values: Sequence[float]) -> list[float]:
    """What step 2 hands to step 3: float32 values as Python floats."""
    return [float(np.float32(value)) for value in values]


def float32_ends(stream: Integers, n: int) -> list[float]:
    """The largest float32 of both signs."""
    return [stream.choice((FLOAT32_MAX, -FLOAT32_MAX)) for _ in range(n)]


def columns() -> Iterator[Case]:
    """Every kind of column as one batch, and as two."""
    kinds: dict[str, Column] = {**FINITE, "f32ends": float32_ends}
    for kind, column in kinds.items():
        for count in (2, 16, 48):
            rewards = as_float32(column(Integers(f"batches/{kind}/{count}"), count))
            yield batch_case(f"{kind}-n{count}", rewards, [count])
        rewards = as_float32(column(Integers(f"batches/{kind}/two"), 16))
        yield batch_case(f"{kind}-two", rewards, [8, 8])


def edges() -> Iterator[Case]:
    """Batches on the edge of what a fast path can decide: exact arithmetic settles some outputs of each."""
    yield batch_case("ends-and-small-n5", as_float32([3e38, -3e38, 1e5, -7.0, 2.5e-3]), [5])
    yield batch_case("few-ulps-n5", [16777211.0, 16777214.0, 16777203.0, 16777210.0, 16777203.0], [5])
    yield batch_case("subnormals-n3", [2.0**-140, -(2.0**-140), 0.0], [3])
    end = 2.185281776027457e38
    rising = [1.1758936907661198e22, 1.1758938033561105e22, 1.1758934655861384e22]
    around = [*rising, *rising[::-1]]
    low = 1.175893578176129e22
    yield batch_case(
        "extremes-and-neighbours-n12", as_float32([end, -end, 3.527680396758415e22, low, *around, low, low]), [12]
    )


def plans() -> Iterator[Case]:
    """Segment plans: of one sample, empty, uneven, many; responses without a token; what is not looked at."""
    stream = Integers("batches/plans")
    rewards = rewards_for(stream, 12)
    for sizes in ([12], [6, 6], [1, 11], [11, 1], [5, 4, 3], [0, 12], [12, 0], [4, 0, 8], [0, 0, 12, 0], [1] * 12):
        name = ".".join(map(str, sizes)) if len(sizes) < 6 else f"{len(sizes)}-of-{sizes[0]}"
        yield batch_case(f"plan-{name}", rewards, sizes)
    yield batch_case("one-sample", [0.7], [1], note="a batch of one sample gives 0")
    yield batch_case("negative-zero", [-0.0, -0.0], [2], note="zero is positive")
    yield batch_case("repeated-pair", as_float32([0.1, 0.7] * 6), [12])
    yield batch_case("empty-responses", rewards[:4], [4], lengths=[3, 0, 2, 0], note="an empty response has its vote")
    yield batch_case("one-token", rewards[:4], [4], lengths=[1, 1, 1, 1])
    yield batch_case("long", rewards[:3], [3], lengths=[300, 1, 40])
    yield batch_case("swapped", rewards[::-1], [12])
    masked = [np.zeros(2, dtype=np.float32), np.ones(2, dtype=np.float32), np.ones(2, dtype=np.float32)]
    yield batch_case(
        "masked", rewards[:3], [3], lengths=[2, 2, 2], loss_masks=masked,
        note="votes are samples, not tokens: the mask changes nothing",
    )  # fmt: skip
    odd_kl = [np.array([np.nan, 1.0], dtype=np.float32), *noise(stream, (1, 2))]
    yield advantage_case("gdpo", "nan-kl", rewards[:3], odd_kl, mini_batch_sizes=[3])


def refusals() -> Iterator[Case]:
    """What step 3 refuses: a plan that is missing or does not fit, and a reward that is no finite float32."""
    rewards = rewards_for(Integers("batches/refusals"), 6)
    plan = "mini_batch_sizes"
    yield batch_case(
        "plan-none", rewards, None, error=(plan,), note="whitening the merged rollout is another objective"
    )
    yield batch_case("plan-too-small", rewards, [3, 2], error=(plan, "5", "6"))
    yield batch_case("plan-too-large", rewards, [3, 4], error=(plan, "7", "6"))
    yield batch_case("plan-empty", rewards, [], error=(plan, "6"))
    for name, sizes, position in (
        ("negative", [8, -2], 1),
        ("fraction", [2.5, 3.5], 0),
        ("float", [3.0, 3.0], 0),
        ("text", ["3", "3"], 0),
        ("bool", [True, 5], 0),
        ("none-inside", [6, None], 1),
    ):
        yield batch_case(f"plan-{name}", rewards, sizes, error=(f"{plan}[{position}]",))
    yield batch_case("plan-number", rewards, 6, error=(plan,))
    for name, value, words in (
        ("nan", float("nan"), "value 4"),
        ("inf", float("inf"), "value 4"),
        ("minus-inf", float("-inf"), "value 4"),
        ("1e300", 1e300, "value 4"),
        ("none", None, "float32"),
        ("text", "0.5", "float32"),
    ):
        bad = [*rewards[:4], value, rewards[5]]
        yield batch_case(f"reward-{name}", bad, [6], error=(words,))
    yield batch_case("lengths-differ", rewards[:5], [5], lengths=[1] * 6, error=("5", "6"))
