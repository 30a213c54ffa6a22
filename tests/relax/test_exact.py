"""Correctly rounded statistics: independent vectors, the proven bound, independence of all but the input."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest
import torch
from flint import fmpq
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relax.algorithms.exact import batch, combine_group, counters, groups
from relax.algorithms.exact.gdpo import EPSILON, combine_groups, whiten
from relax.algorithms.exact.nearest import rational, round_rational, round_standardized
from relax.algorithms.exact.sensitivity import within_input_rounding

VECTORS = json.loads((resources.files("verification.cases") / "data" / "gdpo-vectors.json").read_text())
FLOAT32_MAX = float(np.finfo(np.float32).max)


def bits(values) -> list[int]:
    return np.asarray(values, dtype=np.float32).view(np.int32).tolist()


def unhex(nested):
    return [unhex(item) for item in nested] if isinstance(nested, list) else float.fromhex(nested)


def exact_groups(x: np.ndarray, weights: list[float], epsilon: float | None) -> np.ndarray:
    exact_epsilon = None if epsilon is None else rational(epsilon)
    rows = [np.ascontiguousarray(group) for group in x]
    exact_weights = tuple(rational(weight) for weight in weights)
    return np.array([groups._exact_group(row.tobytes(), row.shape, exact_weights, exact_epsilon) for row in rows])


# One kind a column: ordinary scores, few-valued ones, an offset with a tiny spread, an outlier, huge and tiny ones.
columns = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 50).map(lambda k: 1e9 + k * 2.0**-20),
    st.sampled_from([0.1, 0.2, 0.3, 0.1 + 0.2, 1e6]),
    st.floats(-FLOAT32_MAX, FLOAT32_MAX),
    st.floats(0, 1e-300),
)


@st.composite
def component_groups(draw):
    """``[P, G, K]`` whose columns each come from one kind, and K weights."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(2, 9), st.integers(1, 4)))
    x = np.empty(shape)
    kinds = [draw(st.integers(0, 5)) for _ in range(shape[2])]
    for k, kind in enumerate(kinds):
        x[:, :, k] = draw(hnp.arrays(np.float64, shape[:2], elements=columns.original_strategies[kind]))
    weights = draw(
        st.lists(st.sampled_from([1.0, 2.0, -1.0, 0.5, 0.0, 16777217.0, 1e-3]), min_size=shape[2], max_size=shape[2])
    )
    return x, weights


@pytest.mark.parametrize("case", VECTORS["combine"], ids=lambda case: case["name"])
def test_steps_one_and_two_match_every_vector(case):
    """Each combined value has the bits of the independently computed one."""
    values = combine_groups(np.array(unhex(case["groups"])), unhex(case["weights"]))
    assert bits(unhex(case["expected"])) == bits(values)


@pytest.mark.parametrize("case", VECTORS["whiten"], ids=lambda case: case["name"])
def test_step_three_matches_every_vector(case):
    """Each whitened value has the bits of the independently computed one."""
    values = whiten(np.array(unhex(case["values"]), dtype=np.float32))
    assert bits(unhex(case["expected"])) == bits(values)


@given(component_groups(), st.sampled_from([EPSILON, 1e-6, None]))
def test_what_the_bound_settles_is_the_nearest_float32(group, epsilon):
    """A value that the fast path calls settled equals the one of rational and ball arithmetic."""
    x, weights = group
    values, settled = groups._settle(x, np.array(weights), epsilon)
    exact = exact_groups(x, weights, epsilon)
    assert bits(exact[settled]) == bits(values[settled])


@given(component_groups(), st.randoms(use_true_random=False))
def test_combined_values_do_not_depend_on_order_or_layout(group, random):
    """Groups and samples in another order, or alone, keep their bits."""
    x, weights = group
    whole = combine_groups(x, weights)
    order, members = list(range(x.shape[0])), list(range(x.shape[1]))
    random.shuffle(order)
    random.shuffle(members)
    assert bits(whole[order][:, members]) == bits(combine_groups(x[order][:, members], weights))
    assert bits(whole) == bits(np.concatenate([combine_groups(x[p : p + 1], weights) for p in range(len(x))]))


whitened_values = hnp.arrays(
    np.float32,
    st.integers(2, 40),
    elements=st.one_of(
        st.floats(-3, 3, width=32),
        st.sampled_from([np.float32(v) for v in (0.0, 0.5, 1.0, 1000.0, 1000.01, 1000.02, 1e-45, 3e38, -3e38)]),
    ),
)


@given(whitened_values)
def test_what_the_batch_bound_settles_is_the_nearest_float32(values):
    """A whitened value that the fast path calls settled equals the one of exact arithmetic."""
    if values.min() == values.max():
        assert bits(whiten(values)) == [0] * values.size
        return
    (fast,), (undecided,) = batch._settle(values[None], EPSILON)
    exact = [rational(value) for value in values.tolist()]
    mean = sum(exact, fmpq(0)) / len(exact)
    variance = sum(((value - mean) ** 2 for value in exact), fmpq(0)) / (len(exact) - 1)
    assert (mean, variance) == batch._exact_moments(values)
    nearest = [round_standardized([(value - mean, variance)], rational(EPSILON)) for value in exact]
    assert bits(np.array(nearest)[~undecided]) == bits(fast[~undecided])
    assert bits(nearest) == bits(whiten(values))


@given(st.lists(whitened_values, min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 3))
def test_batches_whitened_together_are_those_whitened_alone(batches, start, count):
    """Rows of equal length, flat ones among them, keep the bits that each has alone, and slices those of the whole."""
    length = min(map(len, batches))
    rows = np.stack([*(values[:length] for values in batches), np.full(length, 0.1, dtype=np.float32)])
    alone = [bits(whiten(row)) for row in rows]
    assert alone == [bits(row) for row in whiten(rows)]
    own = slice(start, start + count)
    assert [row[own] for row in alone] == [bits(row) for row in whiten(rows, own)]


@given(whitened_values, st.randoms(use_true_random=False))
def test_whitened_values_do_not_depend_on_order(values, random):
    """A batch in another order keeps each sample's bits."""
    order = list(range(values.size))
    random.shuffle(order)
    assert bits(whiten(values)[order]) == bits(whiten(values[order]))


def test_a_large_batch_is_settled_almost_without_exact_arithmetic():
    """Of 262,144 scores of an ordinary batch fewer than 30 need exact arithmetic, and those that do not are right."""
    random = np.random.default_rng(7)
    values = (random.integers(-(2**20), 2**20, 2**18) / 2**19).astype(np.float32)
    _, undecided = batch._settle(values[None], EPSILON)
    assert undecided.sum() < 30
    mean, variance = batch._exact_moments(values)
    whitened = whiten(values)
    for i in range(0, values.size, 4096):
        expected = round_standardized([(rational(float(values[i])) - mean, variance)], rational(EPSILON))
        assert bits([expected]) == bits([whitened[i]])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rationals_round_like_the_hardware(value):
    """Rounding a double as a rational gives the bits of the processor's conversion, with a positive zero."""
    with np.errstate(over="ignore"):
        expected = np.float32(value) + np.float32(0)
    assert bits([expected]) == bits([round_rational(rational(value))])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Fraction(2**24 + 1, 2**24), 1.0),  # a tie, to the even neighbour below
        (Fraction(2**24 + 3, 2**24), 1.0 + 2.0**-22),  # a tie, to the even neighbour above
        (Fraction(1, 2**150), 0.0),  # half the smallest subnormal: to even, which is 0
        (Fraction(3, 2**151), 2.0**-149),
        (Fraction(-1, 2**151), 0.0),
        (Fraction(1, 3), float.fromhex("0x1.555556p-2")),
        (2**128 - 2**103 - 1, FLOAT32_MAX),
        (-(2**128) + 2**103, -np.inf),
    ],
)
def test_rationals_round_to_the_nearest_ties_to_even(value, expected):
    """Ties go to the even neighbour, underflow to positive zero, overflow to infinity."""
    assert bits([expected]) == bits([round_rational(fmpq(*value.as_integer_ratio()))])


def test_equal_variances_cancel_exactly():
    """Two components that sum to a constant cancel under equal weights, with an irrational standard deviation."""
    assert bits(combine_group([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [1.0, 1.0])) == [0, 0, 0]


def test_neighbouring_weights_leave_their_true_difference():
    """Weights 16777216 and 16777217 on opposite components leave 1/sqrt(2) minus the effect of epsilon."""
    values = combine_group([[1.0, 0.0], [0.0, 1.0]], [16777216.0, 16777217.0])
    assert bits([-0.7070068, 0.7070068]) == bits(values)


def test_square_roots_of_one_class_cancel_although_their_variances_differ():
    """With variances 2 and 8, whose roots differ by the factor 2, a rational sum is found and ends the search."""
    epsilon = fmpq(1, 10)
    first = fmpq(3)
    second = -first * (8 - epsilon**2) / (2 * (2 - epsilon**2))
    exact = -(first * epsilon / (2 - epsilon**2) + second * epsilon / (8 - epsilon**2))
    assert exact != 0
    assert bits([round_rational(exact)]) == bits([round_standardized([(first, fmpq(2)), (second, fmpq(8))], epsilon)])


def test_an_offset_does_not_drown_the_spread():
    """The float32 values nearest 1000, 1000.01, 1000.02 and 1000.03 whiten to four separate scores, not to zeros."""
    values = whiten(np.array([1000, 1000.01, 1000.02, 1000.03], dtype=np.float32))
    assert bits([-1.1529728, -0.38432428, 0.38432428, 1.1529728]) == bits(values)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_does_not_matter(threads):
    """One and two threads give the bits of the vectors' first case."""
    case, before = VECTORS["combine"][0], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        values = combine_groups(np.array(unhex(case["groups"])), unhex(case["weights"]))
    finally:
        torch.set_num_threads(before)
    assert bits(unhex(case["expected"])) == bits(values)


@pytest.mark.parametrize(
    ("group", "weights", "words"),
    [
        ([[1.0, 2.0]], [1.0, 1.0], ["[1, 2]", "G of 2 or more"]),
        ([[1.0, 2.0], [3.0, 4.0]], [1.0], ["[2, 2]", "[1]"]),
        ([[1.0, float("nan")], [3.0, 4.0]], [1.0, 1.0], ["component 1 of sample 0", "nan"]),
        ([[1.0, 2.0], [1e300, 4.0]], [1.0, 1.0], ["component 0 of sample 1", "1e+300"]),
        ([["1", "2"], ["3", "4"]], [1.0, 1.0], ["group", "real numbers only"]),
        ([[True, False], [False, True]], [1.0, 1.0], ["group", "real numbers only"]),
        ([[1.0, None], [3.0, 4.0]], [1.0, 1.0], ["group", "real numbers only"]),
        ([[1.0, True], [3.0, 4.0]], [1.0, 1.0], ["group", "real numbers only"]),
        ([[1.0, 10**400], [3.0, 4.0]], [1.0, 1.0], ["group", "no array of numbers"]),
        ([[1.0, 2.0], [3.0]], [1.0, 1.0], ["group", "rows of equal length"]),
        ([[1.0, 2.0], [3.0, 4.0]], ["1", "2"], ["weights", "real numbers only"]),
        ([[1.0, 2.0], [3.0, 4.0]], [1.0, 1j], ["weights", "real numbers only"]),
        ([[1.0, 2.0], [3.0, 4.0]], [0.0, 0.0], ["weights", "not all 0"]),
        ([[1.0, 2.0], [3.0, 4.0]], [float("inf"), 0.0], ["weights", "inf"]),
        ([[1.0, 2.0], [3.0, 4.0]], [1.0, 1e300], ["sample 0", "beyond float32", "component 1 dominates"]),
    ],
)
def test_combine_group_refuses_what_it_cannot_combine(group, weights, words):
    """The message names what is wrong, where, and what would help."""
    with pytest.raises(ValueError, match="combine_group") as error:
        combine_group(group, weights)
    assert [word for word in words if word not in str(error.value)] == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_combine_group_takes_tensors_of_every_real_dtype(dtype):
    """A tensor counts as the numbers that it holds, whether or not it requires a gradient."""
    group = torch.tensor([[1, 0], [0, 1], [2, 1]], dtype=dtype)
    expected = combine_group([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]], [1.0, 0.5])
    if dtype.is_floating_point:
        group.requires_grad_()
    assert bits(expected) == bits(combine_group(group, torch.tensor([1.0, 0.5])))


def test_flushing_subnormals_changes_nothing():
    """On a thread that flushes subnormal numbers the results keep their bits, and the thread keeps its mode."""
    group = np.array([[[0, 0], [1e-44, 3e-44], [5e-44, 2e-44], [0, 1e-44]]])
    batch_values = np.array([1e-44, 3e-43, 2e-44], dtype=np.float32)
    expected = bits(combine_groups(group, [1.0, 1.0])), bits(whiten(batch_values))
    assert all(any(values) for values in (expected[0][0], expected[1]))
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    try:
        flushed = bits(combine_groups(group, [1.0, 1.0])), bits(whiten(batch_values))
        still_flushing = 2.0**-1022 * float(np.float64(0.5)) == 0.0
    finally:
        torch.set_flush_denormal(False)
    assert expected == flushed
    assert still_flushing


def test_a_batch_beyond_the_proof_is_refused():
    """The bound of step 3 is proven below 2^26 samples, and a larger batch is an error."""
    with pytest.raises(ValueError, match="67108864"):
        whiten(np.broadcast_to(np.float32(1), 2**26))


def test_the_fallback_is_counted():
    """A group that only exact arithmetic decides adds its open outputs to the counter."""
    before = counters()["groups"]
    combine_groups(np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]]), [1.0, 1.0])
    after = counters()["groups"]
    assert (after.outputs - before.outputs, after.fallback - before.fallback) == (3, 3)
    assert 0 < after.fallback_rate <= 1


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([0.1 + 0.2, 0.3, 0.3, 0.3], True),  # one ulp apart: rounding alone could have made the difference
        ([0.3, 0.3, 0.3, 0.3], False),  # nothing to doubt
        ([0.3 + 2.0**-40, 0.3, 0.3, 0.3], False),  # thousands of ulps apart, though its scores are below 1e-8
        ([1.0, 0.0, 1.0, 0.0], False),
    ],
)
def test_a_group_within_the_rounding_of_its_inputs_is_recognised(column, expected):
    """Half an ulp on every input decides whether a difference means anything."""
    group = np.array([[value, 1.0] for value in column])
    scores = combine_group(group, [1.0, 1.0]).numpy()
    assert expected is within_input_rounding(group, scores, [1.0, 1.0])
