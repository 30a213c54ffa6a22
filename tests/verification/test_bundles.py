"""Bundles: every value survives with its type and bits, and what is damaged or hostile is refused with a reason."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verification.bundles import BundleError, read_cases, read_outcomes, write_cases, write_outcomes
from verification.bundles.arrays import DTYPES
from verification.cases import corpus
from verification.cases.case import Case
from verification.cases.strategies import malformed, reward_groups, whitening_batches
from verification.goldens.digest import input_digest
from verification.goldens.values import words
from verification.subjects.outcome import Failure, Outcome

NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF800000000BEEF))[0]
NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF0000000000001))[0]


def case_of(value: Any, name: str = "one") -> Case:
    return Case(f"loss.reduce/grpo/{name}", "loss.reduce", "grpo", {"value": value})


def carried(folder: Path, value: Any) -> Any:
    """The value after a journey through a bundle."""
    write_cases(folder, [case_of(value)])
    return read_cases(folder)[0].inputs["value"]


def exact(value: Any) -> Any:
    """What two values must have in common to be the same: type, length, order, bits."""
    if isinstance(value, dict):
        return "dict", [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [exact(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(repr, map(exact, value)))
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype, value.shape, value.tobytes()
    if isinstance(value, float):
        return float, struct.pack("<d", value)
    if isinstance(value, complex):
        return complex, exact(value.real), exact(value.imag)
    return type(value), str(value) if isinstance(value, Decimal) else value


KINDS: dict[str, Any] = {
    "nothing": None,
    "truth and numbers": [True, 1, 1.0, False, 0, 0.0, -0.0],
    "not finite": [math.inf, -math.inf, NAN, NEGATIVE_NAN],
    "extreme": [5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, 0.1 + 0.2],
    "integers": [2**63 - 1, -(2**63), 2**63, -(2**64) - 1, 10**5000, -(10**400)],
    "text": ["", "ü\u2028\x00\"\\", "\ud800", "\ud83d\ude00", "😀", "$float"],
    "bytes": [b"", b"\x00\xff"],
    "sequences": ([], (), [[(1, [2])], ()], [(), []]),
    "mappings": {"": 1, "$float": 2, "b": {"$a": {}}, "a": {1: "int", 1.5: "float", None: 0, ("t", 1): {}}},
    "surrogate key": {"\udc00": 1},
    "complex": [complex(-0.0, NAN), complex(math.inf, 1)],
    "rational": [Fraction(-1, 3), Fraction(10**400, 7), Decimal("1.10"), Decimal("-0E-5"), Decimal("sNaN123")],
    "sets": [set(), {1, "1"}, frozenset({(1, 2), b"x"}), {frozenset()}],
    "numpy scalars": [
        np.bool_(True), np.int8(-1), np.uint64(2**64 - 1), np.float16(0.1), np.float32(NAN), np.float64(-0.0),
        np.complex64(1 - 2j), np.complex128(NAN),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_value_survives(tmp_path, kind):
    """Type, bits, order and nesting are the same after the journey."""
    assert exact(KINDS[kind]) == exact(carried(tmp_path, KINDS[kind]))


ARRAYS = {
    **{dtype: np.array([[0, 1, 1], [1, 0, 3]]).astype(dtype) for dtype in (
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
        "float64", "complex64",
    )},
    "nan bits": np.array([0x7FC0BEEF, 0x80000000, 0xFF800001], dtype=np.uint32).view(np.float32),
    "no elements": np.zeros((0, 3), dtype=np.float32),
    "no dimensions": np.array(2.5),
    "every second": np.arange(10, dtype=np.int64)[::-2],
    "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
}  # fmt: skip


@pytest.mark.parametrize("kind", ARRAYS)
def test_each_kind_of_array_survives(tmp_path, kind):
    """Dtype, shape and bits are the same, and the result can be written to, as torch asks of an array."""
    result = carried(tmp_path, [ARRAYS[kind], ARRAYS[kind]])
    assert exact([ARRAYS[kind]] * 2) == exact(result)
    assert result[0].flags.writeable
    assert not np.shares_memory(result[0], result[1]) or not result[0].size


class Text(str):
    """A kind of text that is not text itself."""


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (SimpleNamespace(a=1), "SimpleNamespace"),
        (len, "builtin_function_or_method"),
        (Text("a"), "Text"),
        (np.array(["a"]), "<U1"),
        (np.array([object()]), "'O'"),
        (np.array([1.0], dtype=">f4"), ">f4"),
        (np.longdouble(1), "longdouble"),
        (np.zeros((1,) * 9), "9 dimensions"),
    ],
)
def test_a_value_without_an_exact_form_is_named_with_its_place(tmp_path, value, kind):
    """What would not come back as it was is not written."""
    with pytest.raises(BundleError, match=r"loss\.reduce/grpo/odd: inputs\['value'\]\[1\]\['x'\]") as refused:
        write_cases(tmp_path, [case_of([0, {"x": value}], "odd")])
    assert kind in str(refused.value)


def test_the_whole_corpus_survives(tmp_path):
    """Every case comes back with its input digest and everything else that it says."""
    write_cases(tmp_path, corpus())
    back = read_cases(tmp_path)
    assert [input_digest(case) for case in corpus()] == [input_digest(case) for case in back]
    assert [(c.id, c.stage, c.algorithm, c.error, c.note, c.tags) for c in corpus()] == [
        (c.id, c.stage, c.algorithm, c.error, c.note, c.tags) for c in back
    ]


@given(case=st.one_of(reward_groups(), whitening_batches(), malformed().map(lambda one: one[0])))
def test_any_case_of_the_strategies_survives(tmp_path_factory, case):
    """What hypothesis makes travels as the corpus does."""
    folder = tmp_path_factory.mktemp("bundle")
    write_cases(folder, [case])
    (back,) = read_cases(folder)
    assert exact(dict(case.inputs)) == exact(back.inputs)
    assert input_digest(case) == input_digest(back)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary()
    | st.complex_numbers() | st.fractions() | st.decimals(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
)  # fmt: skip


@given(value=PLAIN)
def test_any_plain_value_survives(tmp_path_factory, value):
    """Whatever is built of plain data comes back with its types and bits."""
    assert exact(value) == exact(carried(tmp_path_factory.mktemp("bundle"), value))


OUTCOMES: dict[str, Outcome | None] = {
    "all dtypes": Outcome(
        arrays={str(dtype): torch.tensor([[0, 1], [1, 1]]).to(dtype) for dtype in DTYPES.values()},
        aliases=frozenset({("a", "input.b"), ("\ud800", "$x")}),
        elsewhere=("loss",),
    ),
    "bits": Outcome(
        arrays={
            "bfloat16": torch.tensor([0x7FC1, -0x8000, 1], dtype=torch.int16).view(torch.bfloat16),
            "strided": torch.arange(10.0)[1::3],
            "none": torch.zeros(0, 2),
            "scalar": torch.tensor(-0.0, dtype=torch.float64),
        },
        mutated={"kl[2]": torch.tensor([float("nan")]), "kl[10]": torch.tensor([], dtype=torch.uint8)},
    ),
    "texts": Outcome(texts={"roles": "a=b\nc", "$odd": "\ud83d\ude00 \ud800"}),
    "failure": Outcome(failure=Failure("ValueError", "reward 'x\udcff' is nan"), mutated={"a": torch.ones(1)}),
    "nothing": Outcome(),
    "not there": None,
}


def outcome_of(outcome: Outcome | None) -> Any:
    if outcome is None:
        return None
    arrays, mutated = (
        {name: (array.dtype, tuple(array.shape), words(array)) for name, array in tensors.items()}
        for tensors in (outcome.arrays, outcome.mutated)
    )
    return list(arrays.items()), list(mutated.items()), {**vars(outcome), "arrays": None, "mutated": None}


def test_outcomes_survive(tmp_path):
    """Arrays of each dtype, changed inputs, aliases, texts, failures and "not there" come back to the bit."""
    write_outcomes(tmp_path, OUTCOMES)
    back = read_outcomes(tmp_path)
    assert list(OUTCOMES) == list(back)
    for name, outcome in OUTCOMES.items():
        assert outcome_of(outcome) == outcome_of(back[name]), name


def test_tensors_that_share_memory_travel_as_values(tmp_path):
    """One tensor under two names becomes two: what shares memory is told by the aliases, not by the bundle."""
    tensor = torch.tensor([1.0, 2.0])
    write_outcomes(tmp_path, {"a": Outcome(arrays={"x": tensor, "y": tensor[1:]})})
    back = read_outcomes(tmp_path)["a"]
    back.arrays["x"].zero_()
    assert back.arrays["y"].tolist() == [2.0]


def test_an_array_that_no_bundle_holds_is_named(tmp_path):
    """A dtype without a place in the file is an error that names case and array."""
    with pytest.raises(BundleError, match=r"a/b/c: arrays 'loss'.*float8_e4m3fn"):
        write_outcomes(tmp_path, {"a/b/c": Outcome(arrays={"loss": torch.zeros(1).to(torch.float8_e4m3fn)})})
