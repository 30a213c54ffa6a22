"""The reward stage: whole arrays with the bits of one group at a time, and refusals that name what is wrong."""

from __future__ import annotations

import fractions

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.rewards import group_carries_reward_signal, observe_reward_signal
from relax.rollout.filters import keep_groups_with_signal
from relax.rollout.metrics import group_label, reward_metrics
from relax.rollout.own_functions import load_function
from relax.rollout.post_process import post_process_rewards
from relax.types import Sample
from verification.cases.arguments import namespace


def samples_of(*groups) -> list[Sample]:
    return [Sample(group_index=index, reward=reward) for index, group in enumerate(groups) for reward in group]


def gdpo(size: int, keys=("correct", "format"), weights=None, **options):
    return namespace(
        "gdpo", n_samples_per_prompt=size, gdpo_reward_keys=list(keys), gdpo_reward_weights=weights, **options
    )


def bits(values) -> list[int]:
    return torch.tensor(values, dtype=torch.float32).view(torch.int32).tolist()


reward = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=32), st.sampled_from([0.0, 0.2, 0.5, 1.0, 1e30, -1e-40])
)


@given(st.integers(2, 40).flatmap(lambda g: st.lists(st.lists(reward, min_size=g, max_size=g), min_size=1, max_size=6)))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_groups_at_once_have_the_bits_of_one_at_a_time(groups):
    """Centring, std and division of the whole array equal torch's on each group alone, NaN bits included."""
    args = namespace("grpo", n_samples_per_prompt=len(groups[0]))
    _, scores = post_process_rewards(args, samples_of(*groups))
    expected = []
    for group in groups:
        row = torch.tensor(group, dtype=torch.float32)
        centred = row - row.mean()
        expected += (centred / (centred.std() + 1e-6)).tolist()
    assert bits(expected) == bits(scores)


@given(st.data())
def test_interleaved_groups_score_as_if_sorted(data):
    """The order in which the samples of several groups arrive does not change a sample's score, under any algorithm."""
    values = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]), min_size=12, max_size=12))
    order = data.draw(st.permutations(range(12)))
    algorithm = data.draw(st.sampled_from(["rloo", "gdpo"]))
    args = gdpo(4) if algorithm == "gdpo" else namespace(algorithm, n_samples_per_prompt=4)
    read = (lambda v, i: {"correct": v, "format": float(i % 2)}) if algorithm == "gdpo" else (lambda v, i: v)
    samples = [Sample(group_index=i // 4, reward=read(v, i)) for i, v in enumerate(values)]
    straight = post_process_rewards(args, samples)[1]
    shuffled = post_process_rewards(args, [samples[i] for i in order])[1]
    assert [straight[i] for i in order] == shuffled


def test_leave_one_out_compares_with_the_others():
    """One winner of four scores 1, the rest -1/3; a near tie scores -0.95, nothing in the thousands."""
    args = namespace("rloo", n_samples_per_prompt=4)
    third = float(np.float32(1 / 3))
    assert post_process_rewards(args, samples_of([1, 0, 0, 0]))[1] == [1.0, -third, -third, -third]
    near_tie = post_process_rewards(namespace("rloo"), samples_of([0.0, *[0.95] * 7]))[1]
    assert near_tie[0] == np.float32(-0.95)
    assert near_tie[1:] == [float(np.float32(fractions.Fraction(0.95) / 7))] * 7


def test_exact_statistics_leave_no_residue_in_a_flat_group():
    """Eight rewards of 0.2 score exactly 0 with exact statistics, where float32 leaves what its mean lost."""
    flat = samples_of([0.2] * 8)
    assert post_process_rewards(namespace("grpo", exact_statistics=True), flat)[1] == [0.0] * 8
    assert abs(post_process_rewards(namespace("grpo"), flat)[1][0]) < 0.02


def test_dr_grpo_is_a_switch():
    """Without the division a group is centred only."""
    args = namespace("grpo", n_samples_per_prompt=4, grpo_std_normalization=False)
    assert post_process_rewards(args, samples_of([1, 0, 0, 3]))[1] == [0.0, -1.0, -1.0, 2.0]


def test_hooks_answer_before_the_reward_stage():
    """The post-processing hook's result is returned as it is; custom advantages stand in for scores."""
    samples = samples_of([1.0, 0.0])
    hooked = namespace("grpo", custom_reward_post_process_path=f"{__name__}.constant_hook")
    assert post_process_rewards(hooked, samples) == "as it is"
    for sample, advantage in zip(samples, (0.25, -4.0), strict=True):
        sample.custom_advantage = advantage
    agentic = namespace("grpo", agentic_custom_advantage_path="any.path")
    assert post_process_rewards(agentic, samples) == ([1.0, 0.0], [0.25, -4.0])


def constant_hook(args, samples):
    return "as it is"


@pytest.mark.parametrize(
    "path", ["nowhere.at_all", "relax.rollout.post_process.nothing", "plain", "", "relax.types.math"]
)
def test_a_hook_that_is_not_there_is_named(path):
    """A wrong path is one clear error."""
    with pytest.raises(ValueError, match="function"):
        load_function(path)


@pytest.mark.parametrize("reward", [10**400, 10**5000], ids=["printable", "too long to print"])
def test_an_int_beyond_float64_is_refused(reward):
    """Whether it stands among floats or ints, the message names the sample."""
    for other in (0.5, 1, np.float32(1)):
        with pytest.raises(ValueError, match=r"sample 1 \(group 0\) .* float64"):
            post_process_rewards(namespace("grpo", n_samples_per_prompt=2), samples_of([other, reward]))


def test_a_weighted_sum_beyond_float64_names_what_dominates():
    """The raw reward is refused like a combined value, by the component that makes it overflow."""
    samples = samples_of([{"correct": 1e10, "format": 1.0}, {"correct": 0.0, "format": 1.0}])
    with pytest.raises(ValueError, match=r"sample 0 \(group 0\) is beyond float64: component 'correct' dominates"):
        post_process_rewards(gdpo(2, weights=[1e300, 1.0]), samples)


BAD = [
    None,
    True,
    np.True_,
    "0.5",
    float("nan"),
    float("inf"),
    -float("inf"),
    1e300,
    10**400,
    10**5000,
    1j,
    [1.0],
    b"1",
]


@pytest.mark.parametrize("value", BAD, ids=lambda value: type(value).__name__)
def test_a_bad_component_is_named_with_its_sample_and_group(value):
    """Whatever is no finite real number within float32 is refused, never replaced, clamped or skipped."""
    rewards = [{"correct": 1.0, "format": 0.5} for _ in range(4)]
    rewards[2] = {"correct": 0.0, "format": value}
    samples = [Sample(group_index=7, reward=reward) for reward in rewards]
    with pytest.raises(ValueError, match=r"'format' of sample 2 \(group 7\)"):
        post_process_rewards(gdpo(4), samples)
    with pytest.raises(ValueError, match=r"'format' of sample 2 \(group 7\)"):
        group_carries_reward_signal(gdpo(4), samples)
    assert observe_reward_signal(gdpo(4), samples) is None


@pytest.mark.parametrize(
    "value", [1, 0.5, np.float16(2), np.float32(0.5), np.int64(3), fractions.Fraction(1, 3), 3.4028234e38]
)
def test_real_numbers_of_every_kind_are_fine(value):
    """Python and numpy numbers count as the double that they convert to."""
    rewards = [{"correct": 1.0, "format": v} for v in (0.0, value)]
    same = [{"correct": 1.0, "format": v} for v in (0.0, float(value))]
    assert post_process_rewards(gdpo(2), samples_of(rewards)) == post_process_rewards(gdpo(2), samples_of(same))


@pytest.mark.parametrize(
    ("rewards", "words"),
    [
        ([1.0, {"correct": 1.0, "format": 0.0}], "sample 0 (group 0) is 1.0: expected a mapping"),
        ([{"correct": 1.0, "format": 0.0}, None], "sample 1 (group 0) is None: expected a mapping"),
        ([{"correct": 1.0, "format": 0.0}, {"correct": 1.0}], "reward 'format' of sample 1 (group 0) is missing"),
        (
            [{"correct": None, "format": None}, {"correct": 1.0, "format": 0.0}],
            "'correct' of sample 0 (group 0) is None",
        ),
    ],
)
def test_a_reward_that_is_no_full_mapping_is_refused(rewards, words):
    """A reward without its components, or without one of them, is an error that names the sample."""
    with pytest.raises(ValueError, match="sample") as error:
        post_process_rewards(gdpo(2), samples_of(rewards))
    assert words in str(error.value)


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "reinforce_plus_plus_baseline", "gdpo"])
def test_a_group_of_another_size_is_refused(algorithm):
    """Ragged groups name the group and both sizes; a missing group index names the sample."""
    args = gdpo(4) if algorithm == "gdpo" else namespace(algorithm, n_samples_per_prompt=4)
    score = {"correct": 1.0, "format": 0.0} if algorithm == "gdpo" else 1.0
    with pytest.raises(ValueError, match=r"group 1 has 3 samples .* 4"):
        post_process_rewards(args, samples_of([score] * 4, [score] * 3, [score] * 4))
    lost = samples_of([score] * 4)
    lost[3].group_index = None
    with pytest.raises(ValueError, match="sample 3 has no group_index"):
        post_process_rewards(args, lost)


@pytest.mark.parametrize(
    ("keys", "weights", "words"),
    [
        (["correct"], None, "two or more"),
        (None, None, "two or more"),
        (["correct", "correct"], None, "named more than once"),
        (["correct", "format"], [1.0], "number of weights is 1, that of keys 2"),
        (["correct", "format"], [1.0, 1.0, 1.0], "number of weights is 3, that of keys 2"),
        (["correct", "format"], [0.0, 0.0], "all weights 0"),
        (["correct", "format"], [1.0, float("nan")], "finite"),
    ],
)
def test_keys_and_weights_are_checked_where_they_are_used(keys, weights, words):
    """The reward stage refuses keys and weights that the command line would have refused."""
    args = namespace("gdpo", n_samples_per_prompt=2, gdpo_reward_keys=keys, gdpo_reward_weights=weights)
    with pytest.raises(ValueError, match="--gdpo-reward") as error:
        post_process_rewards(args, samples_of([{"correct": 1.0, "format": 0.0}, {"correct": 0.0, "format": 0.0}]))
    assert words in str(error.value)


def test_a_combined_value_beyond_float32_names_what_dominates():
    """A finite combination that float32 cannot hold is an error, never an infinity."""
    samples = samples_of([{"correct": 1.0, "format": 0.0}, {"correct": 0.0, "format": 1.0}])
    with pytest.raises(ValueError, match=r"sample 0 \(group 0\) is beyond float32: component 'format' dominates"):
        post_process_rewards(gdpo(2, weights=[1.0, 1e39]), samples)


def test_the_signal_is_what_training_sees():
    """A flat correctness with a varying format carries a signal; components that cancel carry none."""
    varying = samples_of([{"correct": 1.0, "format": f} for f in (0.0, 1.0)])
    cancelling = samples_of([{"correct": c, "format": 1 - c} for c in (0.0, 1.0)])
    assert keep_groups_with_signal(gdpo(2), varying) is True
    assert keep_groups_with_signal(gdpo(2), cancelling) is False
    assert keep_groups_with_signal(gdpo(2, weights=[2.0, 1.0]), cancelling) is True


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([0.2] * 4, False), ([0.2, 0.2, 0.2, 0.3], True), ([1.0, float("nan")], False), ([1.0, float("inf")], False)],
)
def test_the_signal_of_single_rewards(rewards, expected):
    """Float32 rewards that differ carry a signal; one that is not finite answers no."""
    assert group_carries_reward_signal(namespace("grpo"), samples_of(rewards)) is expected


def test_metrics_count_groups_without_a_signal():
    """Flat components, flat combinations, differences within input rounding and unreadable groups are told apart."""
    groups = [
        samples_of([{"correct": 1.0, "format": f} for f in (0.0, 1.0)]),
        samples_of([{"correct": c, "format": 1 - c} for c in (0.0, 1.0)]),
        samples_of([{"correct": 0.3, "format": 0.5}, {"correct": 0.1 + 0.2, "format": 0.5}]),
        samples_of([{"correct": 0.3, "format": None}, {"correct": 0.1, "format": 0.5}]),
    ]
    assert reward_metrics(gdpo(2), groups) == {
        "gdpo/zero_std/correct": 1.0,
        "gdpo/zero_std/format": 1.0,
        "gdpo/zero_std/combined": 1.0,
        "gdpo/groups_within_input_rounding": 1.0,
        "unreadable_groups": 1.0,
    }
    single = [samples_of([0.2] * 2), samples_of([0.2, 0.3]), samples_of([0.2, "x"])]
    assert reward_metrics(namespace("grpo"), single) == {"zero_std": 1.0, "unreadable_groups": 1.0}


def test_the_label_of_a_group_is_what_training_sees_of_it():
    """A flat correctness beside a format that varies is a signal to GDPO, and flat to GRPO of correctness alone."""
    varied = samples_of([{"correct": 1.0, "format": f} for f in (0.0, 1.0)])
    assert group_label(gdpo(2), varied) == "signal"
    assert group_label(namespace("grpo", reward_key="correct", n_samples_per_prompt=2), varied) == "flat"
    assert group_label(namespace("grpo", reward_key="length", n_samples_per_prompt=2), varied) == "unreadable"


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "ppo", "reinforce_plus_plus"])
@pytest.mark.parametrize("normalization", [True, False])
@pytest.mark.parametrize("reward", [None, "0.5", {"correct": 1.0}, 1j])
def test_no_route_lets_through_what_is_no_number(algorithm, normalization, reward):
    """With or without normalization, a reward that is no real number is a TypeError that names the sample."""
    args = namespace(algorithm, n_samples_per_prompt=2, rewards_normalization=normalization)
    with pytest.raises(TypeError, match=r"sample 1 \(group 0\)"):
        post_process_rewards(args, samples_of([1.0, reward]))


def test_custom_advantages_and_picked_rewards_are_checked_too():
    """A missing custom advantage, and under components a picked reward that is NaN, are errors that name the sample."""
    with pytest.raises(TypeError, match=r"custom_advantage of sample 0 \(group 0\) is None"):
        post_process_rewards(namespace("grpo", agentic_custom_advantage_path="any.path"), samples_of([1.0, 0.0]))
    rewards = [{"correct": 1.0, "format": 0.0, "other": v} for v in (0.5, float("nan"))]
    with pytest.raises(ValueError, match=r"'other' of sample 1 \(group 0\) is nan"):
        post_process_rewards(gdpo(2, reward_key="other"), samples_of(rewards))


@pytest.mark.parametrize("index", [None, float("nan"), [1]])
def test_a_group_index_that_is_none_is_named(index):
    """A missing, unhashable or NaN group index names the sample."""
    samples = samples_of([1.0, 0.0])
    samples[1].group_index = index
    with pytest.raises(ValueError, match="sample 1 has no group_index"):
        post_process_rewards(namespace("grpo", n_samples_per_prompt=2), samples)


def test_observers_never_raise():
    """Missing keys, an empty group and a ragged one count as unreadable."""
    groups = [[], samples_of([{"correct": 1.0, "format": 0.0}]), samples_of([{"correct": 1.0, "format": 0.0}] * 2)]
    keyless = namespace("gdpo", n_samples_per_prompt=2)
    assert reward_metrics(keyless, groups)["unreadable_groups"] == 3
    metrics = reward_metrics(gdpo(2), groups)
    assert (metrics["unreadable_groups"], metrics["gdpo/zero_std/combined"]) == (2, 1)
