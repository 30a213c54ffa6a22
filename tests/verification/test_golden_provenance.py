"""Provenance files of goldens: all that stand are read; damaged and hostile ones are refused with the reason, soon."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import pytest

from verification.goldens import provenance
from verification.goldens.compare import default_store
from verification.goldens.provenance import ProvenanceError, Recording

RECORDING = Recording("a" * 40, "b" * 40, "sha256:c", "sha256:d", "cpu-x", "2.13.0", "AVX2", 1, "relax-verify ...")
FIELDS = asdict(RECORDING)
SOON = 20.0  # seconds; each refusal takes less than two, and what it guards against minutes


def refused(data: bytes | str) -> str:
    """What the reader says to this provenance file."""
    began = time.monotonic()
    with pytest.raises(ProvenanceError) as refusal:
        provenance.parse(data if isinstance(data, bytes) else data.encode(), "folder/provenance.json")
    assert time.monotonic() - began < SOON
    assert len(str(refusal.value)) < 1000
    return str(refusal.value)


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
    message = refused(data)
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


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"cos\nmkdir\n(Vmade\ntR.", "line 1: not JSON text"),
        (b"\x80\x04cos\nmkdir\n(Vmade\ntR.", "line 1: not UTF-8 text"),
    ],
)
def test_pickled_bytes_are_refused_and_not_run(tmp_path, monkeypatch, data, said):
    """A pickle that would make a folder is refused in place of provenance, and makes none."""
    monkeypatch.chdir(tmp_path)
    assert refused(data).startswith(f"folder/provenance.json: {said}")
    assert not (tmp_path / "made").exists()


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
