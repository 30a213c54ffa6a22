"""Named cases of ``reward.normalize`` for the algorithms with a single reward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from verification.cases.case import Case
from verification.cases.families import CENTRE_ONLY, GROUPED, LEAVE_ONE_OUT, NO_GROUPS, SINGLE_REWARD
from verification.cases.integers import Integers
from verification.cases.reward_columns import EXTREME, FINITE, large_positive, scores, tenths
from verification.cases.samples import normalize_case, samples_of

Groups = Sequence[Sequence[Any]]  # rewards by group
SIZES = (2, 3, 4, 5, 8, 16, 17, 32, 64)


def reward_cases() -> Iterator[Case]:
    """All of them."""
    yield from kinds()
    yield from sizes()
    yield from booleans()
    yield from ties()
    yield from exact()
    yield from layouts()
    yield from switches()


def kinds() -> Iterator[Case]:
    """Three groups of eight of every kind of column, with and without the division by the group's std."""
    for kind, column in {**FINITE, **EXTREME}.items():
        stream = Integers(f"reward/{kind}")
        groups = [column(stream, 8) for _ in range(3)]
        for algorithm in SINGLE_REWARD:
            if algorithm in LEAVE_ONE_OUT and kind in EXTREME:
                continue  # correctly rounded, so it refuses what has no value: see ``refusals``
            yield normalize_case(algorithm, f"{kind}-g8", samples_of(groups), group_size=8)
        yield normalize_case("grpo", f"{kind}-g8-nostd", samples_of(groups), group_size=8, grpo_std_normalization=False)
    for algorithm in ("gspo", "sapo", "cispo", "rloo", "reinforce_plus_plus_baseline"):
        groups = [tenths(Integers("reward/nostd"), 8)]
        yield normalize_case(
            algorithm, "tenths-g8-nostd", samples_of(groups), group_size=8, grpo_std_normalization=False
        )


def sizes() -> Iterator[Case]:
    """Groups of many sizes; a group of one only where a formula is defined for it, or where its NaN is baseline."""
    for size in SIZES:
        stream = Integers(f"reward/sizes/{size}")
        groups = [scores(stream, size), tenths(stream, size)]
        for algorithm in ("grpo", *CENTRE_ONLY, *LEAVE_ONE_OUT):
            yield normalize_case(algorithm, f"mixed-g{size}", samples_of(groups), group_size=size)
        yield normalize_case(
            "grpo", f"mixed-g{size}-nostd", samples_of(groups), group_size=size, grpo_std_normalization=False
        )
    singles = samples_of([[0.3], [0.7], [-2.0]])
    yield normalize_case(
        "grpo", "g1", singles, group_size=1, note="a group of one divides by NaN: the command line refuses it"
    )
    yield normalize_case("grpo", "g1-nostd", singles, group_size=1, grpo_std_normalization=False)
    yield normalize_case("reinforce_plus_plus_baseline", "g1", singles, group_size=1)
    for algorithm in NO_GROUPS:
        yield normalize_case(algorithm, "g1", singles, group_size=1)
    for algorithm in GROUPED:
        yield normalize_case(algorithm, "one-group-g2", samples_of([[0.25, 1.0]]), group_size=2)
    stream = Integers("reward/many")
    many = [scores(stream, 4) for _ in range(40)]
    for algorithm in ("grpo", *CENTRE_ONLY, *LEAVE_ONE_OUT):
        yield normalize_case(algorithm, "scores-40-groups-g4", samples_of(many), group_size=4)


def booleans() -> Iterator[Case]:
    """A verifier's True and False as single rewards: 1 and 0."""
    for algorithm in SINGLE_REWARD:
        yield normalize_case(algorithm, "booleans-g4", samples_of([[True, False, False, True]]), group_size=4)


def ties() -> Iterator[Case]:
    """Leave-one-out scores that lie half-way between two float32 numbers: to the even one, up and down."""
    groups = [[1 + 2.0**-24, 0.0], [1 + 3 * 2.0**-24, 0.0]]
    yield normalize_case("rloo", "ties-g2", samples_of(groups), group_size=2)


def exact() -> Iterator[Case]:
    """``--exact-statistics``: the float32 nearest the real number, from the rewards as doubles."""
    for kind, column in FINITE.items():
        stream = Integers(f"reward/exact/{kind}")
        groups = [column(stream, 8), column(stream, 8)]
        for algorithm in ("grpo", *CENTRE_ONLY, *LEAVE_ONE_OUT):
            yield normalize_case(algorithm, f"{kind}-g8-exact", samples_of(groups), group_size=8, exact_statistics=True)
        yield normalize_case(
            "grpo",
            f"{kind}-g8-exact-nostd",
            samples_of(groups),
            group_size=8,
            exact_statistics=True,
            grpo_std_normalization=False,
        )
    for algorithm in GROUPED:
        stream = Integers("reward/exact/sizes")
        for size in (2, 3, 17):
            groups = [scores(stream, size), tenths(stream, size)]
            yield normalize_case(
                algorithm, f"mixed-g{size}-exact", samples_of(groups), group_size=size, exact_statistics=True
            )
        groups = [large_positive(stream, 4) for _ in range(2)]
        yield normalize_case(algorithm, "large-g4-exact", samples_of(groups), group_size=4, exact_statistics=True)


def layouts() -> Iterator[Case]:
    """The order of the samples and the groups' labels: neither is part of the formula."""
    stream = Integers("reward/layouts")
    groups = [scores(stream, 4) for _ in range(3)]
    ordered = samples_of(groups)
    interleaved = [ordered[group * 4 + member] for member in range(4) for group in range(3)]
    shuffled = stream.shuffled(ordered)
    for algorithm in (*GROUPED, *NO_GROUPS):
        yield normalize_case(algorithm, "interleaved-g4", interleaved, group_size=4)
        yield normalize_case(algorithm, "shuffled-g4", shuffled, group_size=4)
        yield normalize_case(algorithm, "labels-g4", samples_of(groups, labels=(7, -3, 1_000_000_007)), group_size=4)


def switches() -> Iterator[Case]:
    """Normalisation off, a reward key, and the two functions of one's own that return before the reward stage."""
    stream = Integers("reward/switches")
    groups = [tenths(stream, 4), scores(stream, 4)]
    keyed = [[{"score": reward, "other": -reward} for reward in group] for group in groups]
    custom = [float(position) / 8 for position in range(8)]
    here = "verification.cases.hooks"
    for algorithm in SINGLE_REWARD:
        yield normalize_case(algorithm, "off-g4", samples_of(groups), group_size=4, rewards_normalization=False)
        yield normalize_case(algorithm, "key-g4", samples_of(keyed), group_size=4, reward_key="score")
        yield normalize_case(
            algorithm,
            "custom-g4",
            samples_of(groups, custom_advantage=custom),
            group_size=4,
            agentic_custom_advantage_path=f"{here}.doubled",
        )
        yield normalize_case(
            algorithm, "hook-g4", samples_of(groups), group_size=4, custom_reward_post_process_path=f"{here}.doubled"
        )
    yield from _hooks(groups, keyed, custom)
    yield from _sizes(groups, keyed)


def _hooks(groups: Groups, keyed: Groups, custom: list[float]) -> Iterator[Case]:
    """A hook named with a colon, one that ranks, and what goes first where there are several."""
    here = "verification.cases.hooks"
    colon = f"{here}:doubled"
    for algorithm in ("grpo", "ppo"):
        yield normalize_case(
            algorithm, "hook-colon-g4", samples_of(groups), group_size=4, custom_reward_post_process_path=colon
        )
    yield normalize_case(
        "grpo", "hook-ranked-g4", samples_of(groups), group_size=4, custom_reward_post_process_path=f"{here}.ranked"
    )
    yield normalize_case(
        "grpo",
        "hook-before-custom-g4",
        samples_of(groups, custom_advantage=custom),
        group_size=4,
        custom_reward_post_process_path=f"{here}.doubled",
        agentic_custom_advantage_path=f"{here}.ranked",
    )
    yield normalize_case(
        "grpo",
        "custom-key-g4",
        samples_of(keyed, custom_advantage=custom),
        group_size=4,
        reward_key="other",
        agentic_custom_advantage_path=f"{here}.ranked",
    )


def _sizes(groups: Groups, keyed: Groups) -> Iterator[Case]:
    """A key without normalisation, groups of other sizes than the option says, without a label, of whole numbers."""
    yield normalize_case(
        "grpo", "key-off-g4", samples_of(keyed), group_size=4, reward_key="other", rewards_normalization=False
    )
    flat_list = [reward for group in groups for reward in group]
    ragged = samples_of([flat_list[:3], flat_list[3:]])
    yield normalize_case(
        "grpo",
        "ragged-off-g4",
        ragged,
        group_size=4,
        rewards_normalization=False,
        note="the size of a group is asked only where groups are normalised",
    )
    for algorithm in NO_GROUPS:
        yield normalize_case(algorithm, "ragged-g4", ragged, group_size=4)
        yield normalize_case(algorithm, "no-group-g4", samples_of(groups, labels=(None, None)), group_size=4)
    for algorithm in ("grpo", "ppo"):
        integers = samples_of([[1, 0, 3, 2]])
        yield normalize_case(algorithm, "python-ints-g4", integers, group_size=4)
