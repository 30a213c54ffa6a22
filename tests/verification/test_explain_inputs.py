"""The input of a case as explain and show tell it: every value in decimal, floats with their bits."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import fmpq

from verification.cases import corpus
from verification.cases.case import Case
from verification.cli import main
from verification.explaining.inputs import case_as_data, case_sheets
from verification.explaining.values import elements, exact, scalar, tensor_of
from verification.report.as_json import strict_json
from verification.report.text import lines


def described(inputs: dict, **more) -> str:
    return "\n".join(lines(case_sheets(Case("kl.estimate/grpo/told", "kl.estimate", "grpo", inputs, **more))))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.1, "0.1 (0x3fb999999999999a)"),
        (-0.0, "-0.0 (0x8000000000000000)"),
        (float("nan"), "nan (0x7ff8000000000000)"),
        (True, "True"),
        (7, "7"),
        ("a", "'a'"),
        (None, "None"),
        (1 + 2j, "(1+2j)"),
        (Fraction(1, 3), "Fraction(1, 3)"),
        (np.float32(0.1), "float32 0.1 (0x3dcccccd)"),
        (np.float16(0.5), "float16 0.5 (0x3800)"),
        (np.int64(3), "int64 3"),
    ],
)
def test_single_values(value, told):
    """A Python float has the bits of a double, numpy's own kinds are named, what has no bits to hide stands alone."""
    assert told == scalar(value)


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.array([0.5, -0.0], np.float32), ["0.5 (0x3f000000)", "-0 (0x80000000)"]),
        (np.array([0x7FC00001, 0x7FC00000], np.uint32).view(np.float32), ["nan (0x7fc00001)", "nan (0x7fc00000)"]),
        (np.array([0.1]), ["0.1 (0x3fb999999999999a)"]),
        (np.array([0x3FC0, 0xFF80], np.uint16), ["1.5 (0x3fc0)", "-inf (0xff80)"]),
        (np.array([3, -1]), ["3", "-1"]),
        (np.array([True, False]), ["true", "false"]),
        (np.array([[1.0, 2.0], [3.0, 4.0]], np.float16).T, ["1 (0x3c00)", "3 (0x4200)", "2 (0x4000)", "4 (0x4400)"]),
        (np.zeros((0, 3), np.float32), []),
    ],
)
def test_arrays(array, told):
    """Elements come in row-major order, as the shortest decimal that gives the bits back, with those bits."""
    assert told == elements(tensor_of(array))
    assert array.shape == tensor_of(array).shape


def test_the_description_holds_all_of_the_case():
    """Options, note, tags, the words of the error and every input stand in the description."""
    told = described(
        {
            "values": [np.array([0.5, 0.25], np.float32)],
            "samples": [{"reward": {"a": 0.1}, "index": 3}],
            "lengths": [2, 3],
        },
        options={"kl_coef": 0.25},
        error=("values",),
        note="a note",
        tags=("one", "two"),
    )
    for piece in (
        "kl_coef  0.25 (0x3fd0000000000000)",
        "note       a note",
        "tags       one, two",
        "an error is due whose message names 'values'",
        "values[0]   float32 [2]  0.5 (0x3f000000), 0.25 (0x3e800000)",
        "samples[0]               reward={'a': 0.1 (0x3fb999999999999a)}, index=3",
        "lengths                  [2, 3]",
    ):
        assert piece in told


def test_long_inputs_are_cut_and_counted():
    """Of a long array and a long list the first 64 are shown and the others counted."""
    told = described({"values": [np.arange(70.0, dtype=np.float32)] * 66})
    assert told.count("float32 [70]") == 64
    assert "63 (0x427c0000), ... 6 more" in told
    assert "values      " in told
    assert "... 2 more" in told


def test_a_list_whose_first_item_is_nothing_is_laid_out():
    """Arrays behind a leading None are shown as arrays."""
    assert "values[1]  float32 [1]  1 (0x3f800000)" in described({"values": [None, np.ones(1, np.float32)]})


def test_the_data_is_strict_and_complete():
    """The JSON has every element with its bits, and floats that JSON has no word for with theirs."""
    inputs = {"values": [np.array([np.nan, 1.0], np.float32)], "reward": float("-inf"), "text": "\ud800"}
    loaded = json.loads(strict_json(case_as_data(Case("kl.estimate/a/b", "kl.estimate", "a", inputs, error=("x",)))))
    assert (loaded["inputs"]["values"][0]) == {
        "dtype": "float32",
        "shape": [2],
        "values": ["nan", 1.0],
        "bits": ["7fc00000", "3f800000"],
    }
    assert loaded["inputs"]["reward"]["bits"][0] == "fff0000000000000"
    assert loaded["inputs"]["text"] == "\ud800"
    assert loaded["error"] == ["x"]


def test_every_case_has_data_and_a_description():
    """Each case of the corpus is told in text that any pipe takes and in strict JSON, with all of its elements."""
    for case in corpus():
        told = "\n".join(lines(case_sheets(case)))
        told.encode()
        assert told.startswith(case.id)
        data = json.loads(strict_json(case_as_data(case)), parse_constant=pytest.fail)
        assert list(case.inputs) == list(data["inputs"])
        for given, kept in zip(case.inputs.values(), data["inputs"].values(), strict=True):
            if isinstance(given, list) and given and isinstance(given[0], np.ndarray):
                assert [item.size for item in given] == [len(item["values"]) for item in kept]


def test_show_prints_the_input_alone(capsys: pytest.CaptureFixture[str]):
    """show describes a case without running anything; its JSON has the bits that the tensor has."""
    case = next(case for case in corpus() if case.stage == "kl.estimate")
    assert main(["show", case.id]) == 0
    assert "outcomes" not in capsys.readouterr().out
    assert main(["show", case.id, "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)["inputs"]["log_probs"][0]
    expected = torch.from_numpy(case.inputs["log_probs"][0]).view(torch.int32).tolist()
    assert expected == [int(word, 16) - (1 << 32) * (int(word, 16) >> 31) for word in kept["bits"]]


def test_exact_values_have_more_digits_than_a_float():
    """A rational is shown rounded at twenty digits, not at those of a double."""
    assert exact(fmpq(1, 3)) == "0.33333333333333333333"
    assert exact(fmpq(-7)) == "-7.0000000000000000000"
