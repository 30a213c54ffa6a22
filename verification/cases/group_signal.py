"""Named cases of ``reward.signal``: whether one group carries anything to learn from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verification.cases.case import Case
from verification.cases.components import WEIGHTS
from verification.cases.families import SINGLE_REWARD
from verification.cases.integers import Integers
from verification.cases.reward_columns import EXTREME, FINITE
from verification.cases.samples import component_rewards, samples_of, signal_case


def signal_cases() -> Iterator[Case]:
    """All of them."""
    yield from single_reward()
    yield from components()


def single_reward() -> Iterator[Case]:
    """Minimum against maximum of the float32 rewards; a value that is not finite means no."""
    for kind, column in {**FINITE, **EXTREME}.items():
        samples = samples_of([column(Integers(f"signal/{kind}"), 8)])
        for algorithm in ("grpo", "ppo", "rloo"):
            yield signal_case(algorithm, f"{kind}-g8", samples)
    for algorithm in SINGLE_REWARD:
        yield signal_case(algorithm, "one-winner-g4", samples_of([[0.0, 0.0, 1.0, 0.0]]))
        yield signal_case(algorithm, "flat-fifths-g8", samples_of([[0.2] * 8]))
        yield signal_case(algorithm, "nan-g4", samples_of([[0.0, float("nan"), 1.0, 0.0]]))
    ulp = [1.0, 1.0, 1.0, 1.0 + 2.0**-23]
    yield signal_case("grpo", "one-ulp-g4", samples_of([ulp]))
    yield signal_case("grpo", "below-one-ulp-g4", samples_of([[1.0, 1.0, 1.0, 1.0 + 2.0**-40]]))
    yield signal_case("grpo", "zero-signs-g2", samples_of([[0.0, -0.0]]))
    yield signal_case("grpo", "all-inf-g4", samples_of([[float("inf")] * 4]))
    yield signal_case("grpo", "single-g1", samples_of([[0.5]]))
    yield signal_case("grpo", "nostd-g4", samples_of([ulp]), grpo_std_normalization=False)
    keyed = [{"score": x, "other": 1.0} for x in (0.0, 1.0, 0.5)]
    yield signal_case("grpo", "key-varies-g3", samples_of([keyed]), reward_key="score")
    yield signal_case("grpo", "key-flat-g3", samples_of([keyed]), reward_key="other")
    yield signal_case("cispo", "key-flat-g3", samples_of([keyed]), reward_key="other")


def gdpo_signal(
    rest: str,
    columns: Mapping[str, Sequence[Any]],
    weights: Sequence[float],
    *,
    error: tuple[str, ...] | None = None,
    note: str = "",
) -> Case:
    """A GDPO signal case of one group given as columns."""
    return signal_case(
        "gdpo",
        rest,
        samples_of([component_rewards(columns)], labels=(3,)),
        error=error,
        note=note,
        gdpo_reward_keys=list(columns),
        gdpo_reward_weights=list(weights),
    )


def components() -> Iterator[Case]:
    """GDPO asks steps 1 and 2: the filter sees what the training sees."""
    rising, falling = [0.0, 0.25, 0.5, 1.0], [1.0, 0.75, 0.5, 0.0]
    flat, fifths, binary = [0.5] * 4, [0.2] * 4, [0.0, 1.0, 0.0, 1.0]
    for name, by_count in WEIGHTS.items():
        weights = by_count[2]
        yield gdpo_signal(f"both-vary-{name}", {"a": rising, "b": binary}, weights)
        yield gdpo_signal(f"second-varies-{name}", {"a": fifths, "b": binary}, weights)
        yield gdpo_signal(f"first-varies-{name}", {"a": binary, "b": flat}, weights)
        yield gdpo_signal(f"constant-sum-{name}", {"a": rising, "b": falling}, weights)
        yield gdpo_signal(f"both-flat-{name}", {"a": fifths, "b": flat}, weights)
    yield gdpo_signal("same-negative", {"a": rising, "b": rising}, [1.0, -1.0], note="the difference is exactly zero")
    yield gdpo_signal("scaled-negative", {"a": rising, "b": [2.0 * x for x in rising]}, [1.0, -1.0])
    yield gdpo_signal(
        "below-one-ulp", {"a": [1.0, 1.0, 1.0, 1.0 + 2.0**-52], "b": flat}, [1.0, 1.0],
        note="the inputs are doubles: a difference that float32 would lose is a difference",
    )  # fmt: skip
    yield gdpo_signal("three", {"a": fifths, "b": flat, "c": rising}, [1.0, 1.0, -0.1])
    yield gdpo_signal("pair", {"a": [0.0, 1.0], "b": [1.0, 0.0]}, [1.0, 1.0 + 2.0**-52])
    yield gdpo_signal("bad-nan", {"a": [0.0, float("nan"), 1.0], "b": [0.0, 1.0, 1.0]}, [1.0, 1.0],
                      error=("a", "sample 1"))  # fmt: skip
    yield gdpo_signal("bad-none", {"a": [0.0, 0.5, 1.0], "b": [0.0, 1.0, None]}, [1.0, 1.0], error=("b", "sample 2"))
