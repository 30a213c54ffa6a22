"""Damaged and hostile goldens and provenance files: refused with the place and the reason, soon, and in one way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.goldens import provenance
from verification.goldens.compare import default_store
from verification.goldens.parse import MAX_BYTES, MAX_ELEMENTS, GoldenFormatError, parse
from verification.goldens.provenance import ProvenanceError
from verification.goldens.store import GoldenStore
from verification.goldens.text import render

CASE = "loss.reduce/grpo/two"
HEADER = f"""\
# Regenerate: relax-verify golden regen --baseline HEAD && relax-verify golden accept '{CASE}'
golden 1
case {CASE}
platform any
inputs sha256:{"5a" * 32}

"""
SOON = 20.0  # seconds; each refusal takes less than two, and what it guards against minutes

REAL_GOLDENS = [
    next(default_store().root.glob(pattern))
    for pattern in (
        "advantage.estimate/gdpo/any/reward-1e300.txt",  # a failure
        "advantage.estimate/grpo/*/field-padding-content-zeros.txt",  # aliases
        "loss.reduce/grpo/*/sum-mask-bool.txt",  # an empty array
        "policy.loss/reinforce_plus_plus_baseline/*/mask-int64.txt",
        "reward.signal/grpo/any/scores-g8.txt",  # bools
        "roles.resolve/gdpo/any/debug-rollout-async.txt",  # texts
    )
]
REAL_PROVENANCE = [
    next(default_store().root.glob(f"{leaf}/provenance.json"))
    for leaf in ("advantage.normalize/gdpo/*", "arguments.validate/ppo/any", "reward.normalize/gdpo/any")
]


def refused(data: bytes | str) -> str:
    """What the reader says to this golden."""
    began = time.monotonic()
    with pytest.raises(GoldenFormatError) as refusal:
        parse(data, "folder/x.txt")
    assert time.monotonic() - began < SOON
    assert len(str(refusal.value)) < 1000
    return str(refusal.value)


HOSTILE = {
    "no element of a shape that overflows": (
        "array a float32 [0, 999999999, 999999999, 999999999]\n",
        "7: shape [0, 999999999",
    ),
    "huge sizes, then none": ("array a float32 [999999999, 999999999, 999999999, 0]\n", "7: shape [999999999"),
    "a size of thirteen digits": ("array a float32 [1000000000000]\n  00000000  # 0\n", "7: [1000000000000] is not"),
    "300,000 dimensions": (f"array a float32 [{', '.join(['999999999'] * 300_000)}]\n", "7: shape [999999999"),
    "a size in other digits": ("array a float32 [\u0661]\n  00000000  # 0\n", "7: expected array"),
    "very many empty arrays": ("".join(f"array a{k} float32 [0]\n" for k in range(MAX_ELEMENTS + 9)), "too large"),
    "one limit for all arrays": (
        "".join(f"array a{k} uint8 [{MAX_ELEMENTS - 9}]\n" + "  00\n" * (MAX_ELEMENTS - 9) for k in range(2)),
        f"{MAX_ELEMENTS - 1}: shape [{MAX_ELEMENTS - 9}] is too large",
    ),
    "a dtype of torch that goldens lack": ("array a complex64 []\n  0000000000000000  # 0\n", "7: dtype 'complex64'"),
    "a dtype that is code": ("array a __import__('os').getcwd() []\n", "7: dtype \"__import__('os')"),
    "a very long dtype": (f"array a {'f' * 10**6} []\n", "7: dtype 'ffff"),
    "a very long name twice": (f"array {'a' * 10**6} float32 [0]\n" * 2, "8: the name 'aaaa"),
    "a line in megabytes": ("\\" * (MAX_BYTES - 1000) + "\n", "7: expected array"),
    "a name that never ends": ('text "' + "\\" * (MAX_BYTES - 1000) + "\n", "7: expected array"),
    "a word in megabytes": ("array a float32 []\n  " + "0" * 10**6 + "\n", "8: '0000"),
    "NUL in a name": ("array a\0b float32 [0]\n", "7: expected array"),
    "NUL in a word": ("array a float32 []\n  0000000\0  # 0\n", "8: '0000000\\x00' is not 8 hex"),
    "one array in two blocks": (
        "array a int8 []\n  00  # 0\n\narray a int8 []\n  01  # 1\n",
        "10: the name 'a' occurs",
    ),
    "one alias in two lines": ("alias a b\nalias a b\n", "8: found 'alias a b' where nothing belongs"),
    "two failures": ('failure A "x"\nfailure B "y"\n', "8: expected array"),
    "text that is no string": ('text a "x", ["y"]\n', "7: expected array"),
    "text of two strings": ('text a "x", "y"\n', "is not a JSON string"),
    "half an escape": ('text a "\\ud8"\n', "is not a JSON string"),
    "a negative word": ("array a int8 []\n  -1  # -1\n", "8: '-1' is not 2 hex digits"),
    "underscores in a word": ("array a int32 []\n  0000_000  # 0\n", "8: '0000_000' is not 8 hex"),
}


@pytest.mark.parametrize(("body", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_block_is_refused_at_its_line(body, said):
    """Claimed sizes, odd characters and repeated blocks are refused by what is written, with a short message."""
    message = refused(HEADER + body)
    assert message.startswith("folder/x.txt:")
    assert said in message.removeprefix("folder/x.txt:")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("golden 1", "golden " + "7" * 10**6, "2: format '7777"),
        (CASE + "\n", "x" * 10**6 + "\n", "3: the case 'xxxx"),
        (CASE + "\n", "\x1b[2Jnothing/to/see\n", "3: the case '\\x1b[2J"),
        (CASE + "\n", "../../two \n", "3: the case '../../two '"),
        ("platform any", "platform any\0", "4: the platform 'any\\x00'"),
        ("platform any", "platform ", "4: the platform ''"),
        ("# Regenerate", "\ufeff# Regenerate", "1: expected 'golden ...'"),
        ("\n", "\r\n", "2: format '1\\r'"),
        ("\n", "\r", "2: expected 'golden ...'"),
    ],
)
def test_a_hostile_header_is_refused_at_its_line(old, new, said):
    """Nothing that a terminal would obey, and nothing endless, comes back in the message."""
    assert refused(HEADER.replace(old, new) + "array a int8 []\n  00  # 0\n").startswith(f"folder/x.txt:{said}")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"cos\nmkdir\n(Vmade\ntR.", "4: the file is cut short"),
        (b"\x80\x04cos\nmkdir\n(Vmade\ntR.", "1: not UTF-8 text"),
    ],
)
def test_pickled_bytes_are_refused_and_not_run(tmp_path, monkeypatch, data, said):
    """A pickle that would make a folder is refused in place of a golden, and makes none."""
    monkeypatch.chdir(tmp_path)
    assert refused(data).startswith(f"folder/x.txt:{said}")
    assert not (tmp_path / "made").exists()


def edits() -> st.SearchStrategy:
    """Up to three edits of bytes: each a place from 0 to 1, what to do there, and with which bytes or how many."""
    places = st.floats(0, 1)
    kinds = st.one_of(
        st.tuples(st.just("flip"), st.integers(1, 255)),
        st.tuples(
            st.just("insert"), st.binary(min_size=1, max_size=4) | st.sampled_from([b"\n", b"\0", b'"', b"[" * 9])
        ),
        st.tuples(st.just("delete"), st.integers(1, 40)),
        st.tuples(st.just("repeat"), st.integers(1, 200)),
        st.tuples(st.just("truncate"), st.none()),
    )
    return st.lists(st.tuples(places, kinds), min_size=1, max_size=3)


def edited(data: bytes, changes: list) -> bytes:
    """The bytes after these edits."""
    for place, (kind, what) in changes:
        at = round(place * max(len(data) - 1, 0))
        before, after = data[:at], data[at:]
        if kind == "flip":
            data = before + bytes(byte ^ what for byte in after[:1]) + after[1:]
        elif kind == "insert":
            data = before + what + after
        elif kind == "delete":
            data = before + after[what:]
        elif kind == "repeat":
            data = before + after[:what] + after
        else:
            data = before
    return data


@pytest.mark.parametrize("path", REAL_GOLDENS, ids=lambda path: path.stem)
@given(changes=edits())
def test_a_damaged_golden_is_refused_or_is_just_what_is_read(path, changes):
    """Whatever happens to the bytes of a recorded golden, the reader refuses it or reads all that stands there."""
    data = edited(path.read_bytes(), changes)
    try:
        back = parse(data, "x.txt")
    except GoldenFormatError as error:
        back, said = None, str(error)
    assert said.startswith("x.txt:") if back is None else data == render(back).encode()


@pytest.mark.parametrize("path", REAL_PROVENANCE, ids=lambda path: path.parts[-4])
@given(changes=edits())
def test_damaged_provenance_is_refused_or_is_just_what_is_read(path, changes):
    """Whatever happens to the bytes of a provenance file, the reader refuses it or reads all that stands there."""
    data = edited(path.read_bytes(), changes)
    try:
        back = provenance.parse(data, "x.json")
    except ProvenanceError as error:
        back, said = None, str(error)
    assert said.startswith("x.json: ") if back is None else data == provenance.render(back).encode()


def link(path: Path) -> None:
    target = path.parents[4] / "elsewhere"
    target.write_text(HEADER)
    path.symlink_to(target)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: it takes no room on the disk, and would take a terabyte of memory


NO_PLAIN_FILE = {"a link": link, "a loop": loop, "a folder": Path.mkdir, "a pipe": os.mkfifo, "a terabyte": large}


@pytest.mark.parametrize("make", NO_PLAIN_FILE.values(), ids=NO_PLAIN_FILE)
def test_what_is_no_plain_file_of_sensible_size_is_not_read(tmp_path, make):
    """A link, folder, pipe or endless file in the place of a golden or its provenance is named, and not waited for."""
    store = GoldenStore(tmp_path / "golden")
    path = store.path(CASE, "any")
    path.parent.mkdir(parents=True)
    make(path)
    with pytest.raises(ValueError, match=rf"{path.name}(:1: | is a link)"):
        store.read(CASE, "any")
    make(path.with_name(provenance.FILE))
    with pytest.raises(
        ProvenanceError, match=r"provenance.json: (cannot be read|not a plain file|[\d,]+ bytes, at most)"
    ):
        provenance.read(path.parent)
