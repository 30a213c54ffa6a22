"""The text of goldens: one way to write an outcome, and a reader that refuses everything else."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verification.goldens.parse import MAX_BYTES, MAX_ELEMENTS, GoldenFormatError, parse
from verification.goldens.text import Golden, render
from verification.goldens.values import DTYPES, decimal, from_words, hex_digits, words
from verification.subjects.outcome import Failure, Outcome

DIGEST = "sha256:" + "5a" * 32


def golden(outcome: Outcome) -> Golden:
    return Golden("loss.reduce/grpo/two", "any", DIGEST, outcome)


FULL = golden(
    Outcome(
        arrays={
            "advantages[10]": torch.tensor([0.1, -0.0], dtype=torch.float32),
            "advantages[2]": torch.tensor([[math.inf], [1e-45]], dtype=torch.float32),
            "signal": torch.tensor(True),
        },
        mutated={"kl[0]": torch.tensor([1.5], dtype=torch.float64)},
        aliases=frozenset({("advantages", "returns")}),
        texts={"roles": 'actor=a:B\n"quoted"'},
    )
)
FULL_TEXT = f"""\
# Regenerate: relax-verify golden regen --baseline HEAD && relax-verify golden accept 'loss.reduce/grpo/two'
golden 1
case loss.reduce/grpo/two
platform any
inputs {DIGEST}

array advantages[2] float32 [2, 1]
  7f800000  # inf
  00000001  # 1e-45

array advantages[10] float32 [2]
  3dcccccd  # 0.1
  80000000  # -0

array signal bool []
  01  # true

mutated kl[0] float64 [1]
  3ff8000000000000  # 1.5

alias advantages returns

text roles "actor=a:B\\n\\"quoted\\""
"""


def test_text_is_the_documented_one():
    """Bits are written in hex with the shortest decimal beside them, names in counting order."""
    assert render(FULL) == FULL_TEXT


def test_long_arrays_take_four_elements_a_line():
    """Seventeen elements are one more than is written one a line."""
    lines = render(golden(Outcome(arrays={"loss": torch.arange(17, dtype=torch.float32)}))).splitlines()
    assert lines[7] == "  00000000 3f800000 40000000 40400000  # 0 1 2 3"
    assert lines[11] == "  41800000  # 16"


def outcomes() -> st.SearchStrategy[Outcome]:
    """Outcomes of every kind, their arrays made from arbitrary bit patterns."""
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.sampled_from(["kl[3]", "grad.kl[10]"])

    @st.composite
    def arrays(draw):
        dtype = draw(st.sampled_from(sorted(DTYPES)))
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
        largest = 1 if dtype == "bool" else 16 ** hex_digits(dtype) - 1
        count = math.prod(shape)
        return from_words(draw(st.lists(st.integers(0, largest), min_size=count, max_size=count)), dtype, shape)

    named = st.dictionaries(names, arrays(), max_size=3)
    results = st.builds(
        Outcome,
        arrays=named,
        mutated=named,
        aliases=st.frozensets(st.tuples(names, names), max_size=3),
        texts=st.dictionaries(names, st.text(max_size=20), max_size=2),
    )
    failures = st.builds(Outcome, mutated=named, failure=st.builds(Failure, names, st.text(max_size=30)))
    return results | failures


@given(outcomes())
def test_every_outcome_reads_back_to_the_bit(outcome):
    """Reading what was written gives the same names, dtypes, shapes, bits, aliases, texts and failure."""
    back = parse(render(golden(outcome)), "x.txt").outcome
    for kept, read in ((outcome.arrays, back.arrays), (outcome.mutated, back.mutated)):
        assert set(kept) == set(read)
        for name, array in kept.items():
            assert (array.dtype, array.shape, words(array)) == (read[name].dtype, read[name].shape, words(read[name]))
    assert (outcome.aliases, outcome.texts, outcome.failure) == (back.aliases, back.texts, back.failure)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@given(data=st.data())
def test_the_decimal_beside_the_bits_reads_back_as_the_same_number(dtype, data):
    """Any finite pattern, subnormals and the largest number included, has a decimal that rounds back to it."""
    name = str(dtype).removeprefix("torch.")
    pattern = data.draw(st.integers(0, 16 ** hex_digits(name) - 1))
    array = from_words([pattern], name, ())
    if array.isfinite():
        assert words(torch.tensor(float(decimal(pattern, name)), dtype=dtype)) == [pattern]


@pytest.mark.parametrize(
    ("dtype", "word", "text"),
    [
        ("float32", 0x3DCCCCCD, "0.1"),
        ("float32", 0x80000000, "-0"),
        ("float32", 0x00000000, "0"),
        ("float32", 0x7F7FFFFF, "3.4028235e+38"),
        ("float32", 0x4B800001, "16777218"),
        ("float32", 0xFFC00001, "nan"),
        ("float64", 0x3FB999999999999A, "0.1"),
        ("float16", 0x7BFF, "6.55e+04"),
        ("bfloat16", 0x3F81, "1.01"),
        ("int64", 0xFFFFFFFFFFFFFFFF, "-1"),
        ("bool", 1, "true"),
    ],
)
def test_decimals_are_the_shortest(dtype, word, text):
    """The value beside the bits is as short as it can be and no shorter."""
    assert text == decimal(word, dtype)


def test_addresses_in_messages_are_blanked():
    """A message that shows an object's address gives the same text in every process."""
    texts = [
        render(golden(Outcome(failure=Failure("TypeError", f"<object at 0x7f{n}3d2c1b0a> is no reward"))))
        for n in (1, 2)
    ]
    assert texts[0] == texts[1]


DAMAGED = {
    "unknown dtype": ("float32 [2]", "float31 [2]", 11, "dtype 'float31' is not one of"),
    "another dtype of another size": ("float32 [2]", "float64 [2]", 12, "is not 16 hex digits"),
    "another dtype of the same size": ("float32 [2]", "int32 [2]", 12, "'  3dcccccd  # 0.1' where"),
    "more elements than the shape": ("float32 [2]", "float32 [1]", 11, "has 1 elements, but 2"),
    "fewer elements than the shape": ("float32 [2]", "float32 [3]", 11, "has 3 elements, but 2"),
    "an element dropped": ("  80000000  # -0\n", "", 11, "has 2 elements, but 1"),
    "an absurd shape": ("float32 [2]", "float32 [99999999, 99999999]", 11, "too large"),
    "too many dimensions": ("float32 [2]", f"float32 [{', '.join(['1'] * 9)}]", 11, "too large"),
    "a negative size": ("float32 [2]", "float32 [-2]", 11, "expected array"),
    "a size with leading zero": ("float32 [2]", "float32 [02]", 11, "is not a shape"),
    "a name twice": ("advantages[10]", "advantages[2]", 11, "'advantages[2]' occurs twice"),
    "bits cut": ("3dcccccd", "3dccccc", 12, "not 8 hex digits"),
    "bits in capitals": ("3dcccccd", "3DCCCCCD", 12, "not 8 hex digits"),
    "another value beside the bits": ("# 0.1", "# 0.2", 12, "where '  3dcccccd  # 0.1' belongs"),
    "a bool that is none": ("  01  #", "  02  #", 16, "is no bool"),
    "another format": ("golden 1", "golden 2", 2, "format '2'"),
    "no digest": (DIGEST, "sha256:12", 5, "not sha256:"),
    "header lines swapped": ("case loss.reduce/grpo/two\nplatform any", "platform any\ncase loss", 3, "expected 'case"),
    "an unknown block": ("alias advantages returns", "link advantages returns", 21, "expected array, mutated"),
    "text that is no JSON": ('"actor=a:B\\n', '"actor=a:B\\x', 23, "is not a JSON string"),
    "a failure beside results": ("alias advantages returns", 'failure ValueError "no"', 23, "beside results"),
    "an added line": ("golden 1\n", "golden 1\n\n", 3, "expected 'case"),
    "order changed": ("array signal", "array a", 7, "belongs"),
    "carriage returns": ("\n", "\r\n", 2, "format"),
    "trailing space": (f"{DIGEST}\n", f"{DIGEST} \n", 5, "not sha256:"),
    "a comment inside": ("alias", "# x\nalias", 21, "expected array"),
}


@pytest.mark.parametrize(("old", "new", "line", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused_with_its_line_and_the_reason(old, new, line, reason):
    """Each kind of damage is named with the file and the line it stands on."""
    with pytest.raises(GoldenFormatError) as refusal:
        parse(FULL_TEXT.replace(old, new), "folder/x.txt")
    assert str(refusal.value).startswith(f"folder/x.txt:{line}: ")
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "x:1: the file is cut short"),
        (FULL_TEXT.encode()[:-1], "x:23: the file is cut short"),
        (FULL_TEXT.encode()[:60], "x:1: the file is cut short"),
        (b"# a\ngolden 1\n", "x:2: the file ends where"),
        (FULL_TEXT.encode().replace(b"-0\n", b"-\xff\n"), "x:13: not UTF-8"),
        (b"#" * (MAX_BYTES + 1), "x:1: 4194305 bytes"),
    ],
)
def test_a_truncated_binary_or_huge_file_is_refused(data, where):
    """Bytes that are no golden at all are refused before they are looked into."""
    with pytest.raises(GoldenFormatError) as refusal:
        parse(data, "x")
    assert str(refusal.value).startswith(where)


def test_elements_beyond_the_shape_are_not_collected():
    """A small shape followed by very many elements is refused without reading them all."""
    body = "  00000000\n" * (MAX_ELEMENTS + 5)
    with pytest.raises(GoldenFormatError, match=r"x:7: shape \[2\] has 2 elements, but 3"):
        parse(FULL_TEXT.split("array")[0] + "array loss float32 [2]\n" + body, "x")


@given(st.integers(0, len(FULL_TEXT) - 1), st.characters(codec="utf-8"))
def test_any_single_edit_is_refused_or_changes_what_is_read(position, character):
    """No edit of one character passes unseen: it is refused, or what is read differs in just that."""
    edited = FULL_TEXT[:position] + character + FULL_TEXT[position + 1 :]
    try:
        back = parse(edited, "x")
    except GoldenFormatError:
        return
    assert edited == render(back)


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: FULL_TEXT[:140] + text + "\n"))
def test_arbitrary_data_gives_a_format_error_and_nothing_else(data):
    """The reader raises no other exception than its own, whatever it is given."""
    try:
        back = parse(data, "x")
    except GoldenFormatError:
        return
    assert render(back) == (data if isinstance(data, str) else data.decode())


def test_an_array_of_an_unknown_dtype_is_not_written():
    """A complex array is refused by name instead of being written in part."""
    with pytest.raises(ValueError, match=r"'loss' has dtype torch.complex64"):
        render(golden(Outcome(arrays={"loss": torch.zeros(1, dtype=torch.complex64)})))
