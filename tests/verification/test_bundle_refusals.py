"""Bundles that were damaged or made to do harm: each is refused with its reason, by no other error than BundleError."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.verification.test_bundles import OUTCOMES, case_of, exact, outcome_of
from verification.bundles import BundleError, read_cases, read_outcomes, write_cases, write_outcomes
from verification.bundles.strict_json import MAX_KEYS
from verification.cases.case import Case
from verification.subjects.outcome import Outcome

# The mapping of "a" to 1, as no bundle holds it.
PICKLED = b"\x80\x04\x95\n\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s."
CASES = [case_of([1, np.array([1.5, 2.5], dtype=np.float32)]), case_of({1: (True,)}, "two")]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_cases(tmp_path / "bundle", CASES)
    return tmp_path / "bundle"


def sign(bundle: Path) -> None:
    """Makes the manifest tell the truth about the files."""
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    for name, about in manifest["files"].items():
        data = (bundle / name).read_bytes()
        about.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def in_manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(bundle: Path) -> None:
        manifest = json.loads((bundle / "manifest.json").read_bytes())
        change(manifest)
        (bundle / "manifest.json").write_text(json.dumps(manifest))

    return damage


def linked(name: str) -> Callable[[Path], None]:
    def damage(bundle: Path) -> None:
        os.rename(bundle / name, bundle / "aside")
        os.symlink(bundle / "aside", bundle / name)

    return damage


def piped(bundle: Path) -> None:
    (bundle / "cases.json").unlink()
    os.mkfifo(bundle / "cases.json")


def oversized(name: str, size: int) -> Callable[[Path], None]:
    return lambda bundle: os.truncate(bundle / name, size)


def cut(name: str) -> Callable[[Path], None]:
    return lambda bundle: os.truncate(bundle / name, (bundle / name).stat().st_size - 1)


def moved(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["files"].update({new: manifest["files"].pop(old)})


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda bundle: (bundle / "manifest.json").unlink(), r"manifest\.json: cannot be read"),
    "no folder": (lambda bundle: os.rename(bundle, f"{bundle}-away"), r"manifest\.json: cannot be read"),
    "missing file": (lambda bundle: (bundle / "cases.json").unlink(), r"cases\.json: cannot be read"),
    "path outside": (in_manifest(moved("cases.json", "../cases.json")), r"'\.\./cases\.json' is not expected"),
    "absolute path": (in_manifest(moved("cases.json", "/etc/passwd")), "'/etc/passwd' is not expected"),
    "more files": (in_manifest(lambda m: m["files"].update(x={})), "'x' is not expected"),
    "linked file": (linked("cases.json"), r"cases\.json: cannot be read \(a link\)"),
    "linked manifest": (linked("manifest.json"), r"manifest\.json: cannot be read \(a link\)"),
    "pipe": (piped, "not a plain file"),
    "cut document": (cut("cases.json"), r"cases\.json: \d+ bytes, but \d+ bytes by the manifest: it was cut short"),
    "cut arrays": (cut("arrays.safetensors"), r"arrays\.safetensors: .* cut short"),
    "cut manifest": (cut("manifest.json"), r"manifest\.json: "),
    "oversized document": (oversized("cases.json", 2**26 + 1), r"cases\.json: 67,108,865 bytes, at most 67,108,864"),
    "oversized arrays": (oversized("arrays.safetensors", 2**29 + 1), r"536,870,913 bytes, at most 536,870,912"),
    "oversized manifest": (oversized("manifest.json", 2**16 + 1), r"manifest\.json: 65,537 bytes, at most 65,536"),
    "checksum": (lambda b: (b / "cases.json").write_bytes(b" " * (b / "cases.json").stat().st_size), "its checksum"),
    "unknown format": (in_manifest(lambda m: m.update(format=2)), "format 2, this version reads 1"),
    "other kind": (in_manifest(lambda m: m.update(kind="outcomes")), "kind 'outcomes', expected 'cases'"),
    "wrong count": (in_manifest(lambda m: m.update(count=3)), "not the 3 cases"),
    "count of no kind": (in_manifest(lambda m: m.update(count=[2])), r"\[2\] is no number of cases"),
    "manifest of a list": (lambda b: (b / "manifest.json").write_text("[]"), "expected an object with format"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bundle_is_refused_with_the_reason(bundle, damage):
    """Files that are not those of the manifest, or not where they should be, are not read any further."""
    change, reason = DAMAGES[damage]
    change(bundle)
    with pytest.raises(BundleError, match=reason):
        read_cases(bundle)


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old.encode() in data, data
        return data.replace(old.encode(), new.encode(), 1)

    return change


HOSTILE_DOCUMENTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "pickle": (lambda _: PICKLED, r"cases\.json: 'ascii' codec|cases\.json: Expecting value"),
    "a million keys": (
        lambda _: b"{" + b",".join(b'"%d":0' % index for index in range(MAX_KEYS)) + b"}",
        "1,000,000 keys or more",
    ),
    "deep nesting": (lambda _: b"[" * 100_000 + b"]" * 100_000, "more than 100 levels deep"),
    "deep nesting behind a quote": (lambda _: b'["\\"",' + b"[" * 200, "more than 100 levels deep"),
    "duplicate key": (replaced('"note":""', '"note":"","note":"x"'), "the key 'note' stands twice"),
    "duplicate key of a value": (replaced("[[1,", '[[1,{"$tuple":[]}],[1,'), "no dict: a key stands twice"),
    "NaN": (replaced("[1,", "[NaN,"), "NaN is no JSON number"),
    "infinity": (replaced("[1,", "[-Infinity,"), "-Infinity is no JSON number"),
    "huge number": (replaced("[1,", "[1e999,"), "1e999 is beyond the range"),
    "long integer": (replaced("[1,", f"[{'1' * 5000},"), "Exceeds the limit"),
    "trailing": (lambda data: data + b"[]", "Extra data"),
    "unknown kind": (replaced("$tuple", "$object"), "'\\$object' is no kind of value"),
    "two kinds": (replaced('"$tuple":', '"$set":[],"$tuple":'), "'\\$set' is no kind of value"),
    "unhashable": (replaced('{"$tuple":[true]}', '{"$set":[[]]}'), "no set: unhashable"),
    "no division": (replaced('{"$tuple":[true]}', '{"$fraction":[1,0]}'), "no fraction"),
    "odd scalar": (replaced('{"$tuple":[true]}', '{"$numpy":["object","00"]}'), "'object' is no type"),
    "short scalar": (replaced('{"$tuple":[true]}', '{"$numpy":["float64","00"]}'), "no numpy"),
    "long text of a number": (replaced('"note":""', f'"note":{{"$int":"{9000 * "f"}"}}'), "note is no note"),
    "unknown stage": (replaced('"stage":"loss.reduce"', '"stage":"loss.invent"'), r"stage 'loss\.invent' is not"),
    "one id twice": (replaced("grpo/two", "grpo/one"), "two cases have one id"),
    "missing field": (replaced('"note":""', '"remark":""'), "'note' is missing|'remark' is not expected"),
    "wrong field": (replaced('"note":""', '"note":3'), "note is no note of a case, but a int"),
    "array of another dtype": (replaced('["F32",0,[2]]', '["F64",0,[2]]'), "no arrays of dtype 'F64'"),
    "array beyond the end": (replaced('["F32",0,[2]]', '["F32",1,[2]]'), "2 elements from 1 on, but there are 2"),
    "array of huge shape": (replaced('["F32",0,[2]]', '["F32",0,[1099511627775,1099511627775]]'), "but there are 2"),
    "array of no size": (replaced("[2]]", f"[0{7 * ',1099511627775'}]]"), "no shape"),
    "array before the start": (replaced('["F32",0,[2]]', '["F32",-1,[2]]'), "no start and shape"),
    "array of odd shape": (replaced('["F32",0,[2]]', '["F32",0,[true,2.0]]'), "no start and shape"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE_DOCUMENTS)
def test_a_hostile_document_is_refused_with_the_reason(bundle, kind):
    """Right checksums make nothing right: the document itself is not what the harness writes."""
    change, reason = HOSTILE_DOCUMENTS[kind]
    (bundle / "cases.json").write_bytes(change((bundle / "cases.json").read_bytes()))
    sign(bundle)
    with pytest.raises(BundleError, match=reason):
        read_cases(bundle)


def header(entries: Any, data: bytes = b"\0" * 8, length: int | None = None) -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def f32(**entry: Any) -> dict[str, Any]:
    return {"F32": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}}


HOSTILE_ARRAYS: dict[str, tuple[bytes, str]] = {
    "pickle": (PICKLED, "no safetensors, or cut short"),
    "nothing": (b"", "0 bytes"),
    "long header": (header(f32(), length=2**62), "no safetensors, or cut short"),
    "no JSON": (header(b"\x80\x04."), "header: 'ascii' codec"),
    "a list": (header([]), "its header is no object"),
    "unknown dtype": (header({"F8_E4M3": f32()["F32"]}), "not one of BOOL"),
    "other dtype": (header(f32(dtype="F16")), "elements are said to be 'F16'"),
    "metadata": (header({"__metadata__": {"a": "b"}, **f32()}), "not one of BOOL"),
    "bad shape": (header(f32(shape=[-2])), "not that of a flat tensor"),
    "no flat shape": (header(f32(shape=[1, 2])), "not that of a flat tensor"),
    "huge shape": (header(f32(shape=[2**39])), "elements take"),
    "bad place": (header(f32(data_offsets=[0])), "no place in the file"),
    "hole": (header(f32(data_offsets=[4, 12]), b"\0" * 12), "byte 0 belongs to no array"),
    "overlap": (header({**f32(), "F64": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}), "or to two"),
    "more data": (header(f32(), b"\0" * 9), "take 8 bytes, but 9 are there"),
    "less data": (header(f32(), b"\0" * 7), "take 8 bytes, but 7 are there"),
    "twice": (header(b'{"F32":{},"F32":{}}'), "'F32' stands twice"),
    "truth of two": (
        header({**f32(), "BOOL": {"dtype": "BOOL", "shape": [1], "data_offsets": [8, 9]}}, b"\0" * 8 + b"\2"),
        "neither 0 nor 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE_ARRAYS)
def test_hostile_arrays_are_refused_with_the_reason(bundle, kind):
    """The header is held against the file before any array is made of it."""
    data, reason = HOSTILE_ARRAYS[kind]
    (bundle / "arrays.safetensors").write_bytes(data)
    sign(bundle)
    with pytest.raises(BundleError, match=reason):
        read_cases(bundle)


HOSTILE_OUTCOMES = {
    "aliases": (replaced('"aliases":{"$frozenset":[]}', '"aliases":[]'), "aliases is none of an outcome"),
    "alias of three": (
        replaced('{"$frozenset":[]}', '{"$frozenset":[{"$tuple":["a","b","c"]}]}'),
        "aliases is none of an outcome",
    ),
    "texts": (replaced('"texts":{}', '"texts":{"a":1}'), "texts is none of an outcome"),
    "failure": (replaced('"failure":null', '"failure":"ValueError"'), "failure is none of an outcome"),
    "names": (replaced('["loss",', '[1,'), "a name is no text, or stands twice"),
    "places": (replaced('["F32",0,[1]]', '["F32",1,[1]]'), r"a: arrays 'loss': an array of 1 elements from 1 on"),
    "entry": (replaced('["a",', '[1,'), "entry 0 is no outcome"),
    "arrays": (replaced('"mutated":[]', '"mutated":{}'), "mutated: expected names with places"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE_OUTCOMES)
def test_hostile_outcomes_are_refused_with_the_reason(tmp_path, kind):
    """An outcome that no subject could have had is not taken for one."""
    change, reason = HOSTILE_OUTCOMES[kind]
    write_outcomes(tmp_path, {"a": Outcome(arrays={"loss": torch.ones(1)})})
    (tmp_path / "outcomes.json").write_bytes(change((tmp_path / "outcomes.json").read_bytes()))
    sign(tmp_path)
    with pytest.raises(BundleError, match=reason):
        read_outcomes(tmp_path)


EDITS = st.tuples(
    st.sampled_from(("manifest.json", "document", "arrays.safetensors")),
    st.sampled_from(("flip", "cut", "insert", "remove")),
    st.integers(0, 10**6),
    st.integers(1, 255),
)


def edited(data: bytes, how: str, where: int, byte: int) -> bytes:
    where %= len(data)
    if how == "cut":
        return data[:where]
    if how == "insert":
        return data[:where] + bytes([byte]) + data[where:]
    return data[:where] + (b"" if how == "remove" else bytes([data[where] ^ byte])) + data[where + 1 :]


@given(edit=EDITS, signed=st.booleans())
def test_any_edit_of_cases_gives_an_error_of_bundles_or_the_same_content(tmp_path_factory, edit, signed):
    """Bytes flipped, cut, put in or taken out anywhere: a reason, never another exception, never other content.

    With checksums made right again a value may be another one, as any value may be; it is still a case.
    """
    folder = tmp_path_factory.mktemp("bundle")
    write_cases(folder, CASES)
    file, *change = edit
    path = folder / file.replace("document", "cases.json")
    path.write_bytes(edited(path.read_bytes(), *change))
    if signed and file != "manifest.json":
        sign(folder)
    try:
        back = read_cases(folder)
    except BundleError:
        return
    if signed:
        assert all(isinstance(case, Case) for case in back)
    else:
        assert [exact(vars(case)) for case in CASES] == [exact(vars(case)) for case in back]


@given(edit=EDITS, signed=st.booleans())
def test_any_edit_of_outcomes_gives_an_error_of_bundles_or_the_same_content(tmp_path_factory, edit, signed):
    """The same for what comes back from a process."""
    folder = tmp_path_factory.mktemp("bundle")
    write_outcomes(folder, OUTCOMES)
    file, *change = edit
    path = folder / file.replace("document", "outcomes.json")
    path.write_bytes(edited(path.read_bytes(), *change))
    if signed and file != "manifest.json":
        sign(folder)
    try:
        back = read_outcomes(folder)
    except BundleError:
        return
    if not signed:
        assert {name: outcome_of(one) for name, one in OUTCOMES.items()} == {
            name: outcome_of(one) for name, one in back.items()
        }
