"""Damaged and hostile goldens and provenance files: refused with the place and the reason, soon, and in one way."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.goldens import provenance
from verification.goldens.compare import default_store
from verification.goldens.parse import MAX_BYTES, MAX_ELEMENTS, GoldenFormatError, parse
from verification.goldens.provenance import ProvenanceError, Recording
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
RECORDING = Recording("a" * 40, "b" * 40, "sha256:c", "sha256:d", "cpu-x", "2.13.0", "AVX2", 1, "relax-verify ...")
FIELDS = asdict(RECORDING)
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


def provenance_refused(data: bytes | str) -> str:
    """What the reader says to this provenance file."""
    began = time.monotonic()
    with pytest.raises(ProvenanceError) as refusal:
        provenance.parse(data if isinstance(data, bytes) else data.encode(), "folder/provenance.json")
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
    ("data", "golden_said", "provenance_said"),
    [
        (b"cos\nmkdir\n(Vmade\ntR.", "4: the file is cut short", "line 1: not JSON text"),
        (b"\x80\x04cos\nmkdir\n(Vmade\ntR.", "1: not UTF-8 text", "line 1: not UTF-8 text"),
    ],
)
def test_pickled_bytes_are_refused_and_not_run(tmp_path, monkeypatch, data, golden_said, provenance_said):
    """A pickle that would make a folder is refused in place of a golden and of provenance, and makes none."""
    monkeypatch.chdir(tmp_path)
    assert refused(data).startswith(f"folder/x.txt:{golden_said}")
    assert provenance_refused(data).startswith(f"folder/provenance.json: {provenance_said}")
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


def test_all_provenance_of_the_goldens_is_read():
    """The strict reader takes every file that stands, and finds in it the goldens that lie beside it."""
    folders = {path.parent for path in default_store().root.glob("*/*/*/*.txt")}
    for folder in folders:
        named = set().union(*provenance.read(folder).values())
        assert {path.stem for path in folder.glob("*.txt")} == named, folder
    assert len(folders) > 50


def entry(goldens: object = ("two",), **changed: object) -> dict:
    """One recording of a provenance file, with some fields changed."""
    return {**FIELDS, **changed, "goldens": list(goldens) if isinstance(goldens, tuple) else goldens}


def document(*recordings: object) -> str:
    """A provenance file with these recordings, laid out as the real ones are."""
    return json.dumps({"format": 1, "recordings": list(recordings)}, indent=2) + "\n"


GOOD = document(entry())
BAD_PROVENANCE = {
    "deep nesting": ("[" * 500_000, "nested too deeply"),
    "deep objects": ('{"a":' * 200_000, "nested too deeply"),
    "a million bytes too many": (" " * (provenance.MAX_BYTES + 1), "more than 1048576 bytes"),
    "very many keys": (
        document({**FIELDS, "goldens": [], **dict.fromkeys(map(str, range(60_000)))}).replace("\n      ", ""),
        "recording 1: a recording has exactly the fields baseline",
    ),
    "a number of many digits": (GOOD.replace('"threads": 1', '"threads": ' + "9" * 10**6), "digits"),
    "a key twice": (
        GOOD.replace('"threads": 1', '"threads": 2,\n      "threads": 1'),
        "the key 'threads' stands twice",
    ),
    "a recording twice": (document(entry(), entry(("three",))), "recording 2: is listed before"),
    "a golden twice": (document(entry(("two", "two"))), "recording 1: the golden 'two' is listed twice"),
    "a golden of two recordings": (document(entry(), entry(baseline="c" * 40)), "recording 2: the golden 'two'"),
    "a golden outside": (document(entry(("../../two",))), "'../../two' is no name of a golden"),
    "a golden at an absolute path": (document(entry(("/etc/passwd",))), "'/etc/passwd' is no name"),
    "a golden that is no text": (document(entry(([],))), "a value of type list is no name"),
    "goldens in an object": (document(entry({"two": 1})), "recording 1: has no list of goldens"),
    "a recording that is none": (document("two"), "recording 1: has no list of goldens"),
    "a recording without goldens": (document(entry(())), "line 3: found '  \"recordings\": [' where"),
    "carriage returns": (GOOD.replace("\n", "\r\n"), "line 1: found '{\\r' where '{' belongs"),
    "NUL": (GOOD.replace("AVX2", "AV\0X2"), "line 11: not JSON text"),
    "NUL, escaped": (GOOD.replace("AVX2", "AV\\u0000X2"), "capability is 'AV\\x00X2', not a line of text"),
    "cut short": (GOOD[:200], "line 8: not JSON text"),
    "the last newline cut": (GOOD[:-1], "line 20: found nothing where '' belongs"),
    "a second document": (GOOD + GOOD, "line 20: not JSON text"),
    "a mark of byte order": ("\ufeff" + GOOD, "line 1: not JSON text"),
    "another key": (GOOD.replace('"format": 1,', '"format": 1,\n  "x": 0,'), "line 3: found '  \"x\": 0,'"),
    "format true": (GOOD.replace('"format": 1', '"format": true'), "line 2: found"),
    "goldens out of order": (document(entry(("two", "three"))), 'line 15: found \'        "two",'),
    "not UTF-8": (GOOD.encode().replace(b"AVX2", b"\xff"), "line 11: not UTF-8 text"),
}


@pytest.mark.parametrize(("data", "said"), BAD_PROVENANCE.values(), ids=BAD_PROVENANCE)
def test_bad_provenance_is_refused_with_the_reason(data, said):
    """Each kind of damage or malice is named with the file, and with the line or recording where it stands."""
    message = provenance_refused(data)
    assert message.startswith("folder/provenance.json: ")
    assert said in message


BAD_FIELDS = {
    "no number": ({"threads": "1"}, "threads is '1'"),
    "true": ({"threads": True}, "threads is a value of type bool"),
    "a float": ({"threads": 1.0}, "threads is a value of type float"),
    "NaN": ({"threads": float("nan")}, "threads is a value of type float"),
    "no threads": ({"threads": 0}, "threads is a value of type int, not a number from 1"),
    "a huge number": ({"threads": 10**300}, "not a number from 1 to 65536"),
    "null": ({"torch": None}, "torch is nothing"),
    "a list": ({"baseline": ["a" * 40]}, "baseline is a value of type list"),
    "a number for text": ({"corpus": 7}, "corpus is a value of type int"),
    "empty": ({"platform": ""}, "platform is ''"),
    "endless": ({"command": "x" * 5000}, "command is 'xxxx"),
    "what a terminal obeys": ({"command": "\x1b[2J"}, "command is '\\x1b[2J'"),
    "half a character": ({"command": "\ud800"}, "command is '\\ud800'"),
    "one field more": ({"goldens": []}, "exactly the fields"),
}


@pytest.mark.parametrize(("changed", "said"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_recording_has_exactly_its_fields_of_their_types(changed, said):
    """What stages a recording is read as strictly as what is kept of it."""
    with pytest.raises(ProvenanceError) as refusal:
        provenance.recording_from(json.dumps({**FIELDS, **changed}), "folder/recording.json")
    assert str(refusal.value).startswith("folder/recording.json: ")
    assert said in str(refusal.value)


@pytest.mark.parametrize("missing", FIELDS)
def test_a_recording_lacks_no_field(missing):
    """Any one field left out is refused; all of them together are read back."""
    assert provenance.recording_from(json.dumps(FIELDS), "recording.json") == RECORDING
    rest = {name: value for name, value in FIELDS.items() if name != missing}
    with pytest.raises(ProvenanceError, match="exactly the fields"):
        provenance.recording_from(json.dumps(rest), "recording.json")


@pytest.mark.parametrize("text", ["", "null", "[]", "7", '"x"', "[" * 200_000, "\ud800", "{" + '"a":1,' * 2 + "}"])
def test_text_that_is_no_recording_is_refused(text):
    """Other JSON, broken JSON and no JSON give the same class of error."""
    with pytest.raises(ProvenanceError, match=r"^recording.json: "):
        provenance.recording_from(text, "recording.json")


def link(path: Path) -> None:
    target = path.parents[4] / "elsewhere"
    target.write_text(GOOD if path.suffix == ".json" else HEADER)
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


def test_provenance_is_not_read_through_a_linked_folder(tmp_path):
    """A stage that is a link to elsewhere is refused by name, as the store refuses it for goldens."""
    elsewhere = tmp_path / "elsewhere" / "grpo" / "any"
    elsewhere.mkdir(parents=True)
    (elsewhere / provenance.FILE).write_text(GOOD)
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "loss.reduce").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProvenanceError, match=r"loss.reduce is a link"):
        provenance.read(tmp_path / "golden" / "loss.reduce" / "grpo" / "any")
    assert {RECORDING: {"two"}} == provenance.read(elsewhere)
