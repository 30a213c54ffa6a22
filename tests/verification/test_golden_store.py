"""The store of goldens: where files lie, what reaches outside, and the provenance beside them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from verification.goldens import provenance
from verification.goldens.guard import WritePermit
from verification.goldens.parse import GoldenFormatError
from verification.goldens.provenance import ProvenanceError, Recording
from verification.goldens.store import GoldenStore, write_atomically
from verification.goldens.text import Golden, render
from verification.revisions.checkout import Checkout
from verification.subjects.outcome import Outcome

GOLDEN = Golden("loss.reduce/grpo/two", "any", "sha256:" + "0" * 64, Outcome(arrays={"loss": torch.tensor(0.75)}))
RECORDING = Recording("a" * 40, "b" * 40, "sha256:c", "sha256:d", "cpu-x", "2.13.0", "AVX2", 1, "relax-verify ...")


@pytest.fixture
def store(tmp_path: Path) -> GoldenStore:
    return GoldenStore(tmp_path / "golden")


@pytest.fixture
def granted(tmp_path: Path) -> WritePermit:
    return WritePermit(Checkout(tmp_path), "a" * 40)


def test_a_golden_lies_at_stage_algorithm_platform_rest(store):
    """The platform is a folder between the algorithm and the rest of the id."""
    expected = store.root / "loss.reduce" / "grpo" / "cpu-torch2.13.0-avx2-1a2b3c4d" / "two.txt"
    assert expected == store.path("loss.reduce/grpo/two", "cpu-torch2.13.0-avx2-1a2b3c4d")


@pytest.mark.parametrize(
    "case",
    [
        "../grpo/two",
        "loss.reduce/../two",
        "loss.reduce/grpo/..",
        "loss.reduce/grpo/../../../two",
        "/loss.reduce/grpo",
        "loss.reduce/grpo",
        "loss.reduce/grpo/two/more",
        "loss.reduce//two",
        "loss.reduce/grpo/.two",
        "loss.reduce/grpo/Two",
        "loss.reduce/grpo/two\n",
        "loss.reduce/grpo/t\x00wo",
        "loss.reduce\\grpo\\two",
        "loss.reduce/grpo/" + "x" * 300,
        "",
    ],
)
def test_no_case_id_leads_anywhere_else(store, case):
    """An id that is not three plain segments has no place, for reading as for writing."""
    with pytest.raises(ValueError, match="is not stage/algorithm/rest"):
        store.path(case, "any")


@pytest.mark.parametrize("platform", ["..", ".", "", "a/b", "CPU", "/tmp"])
def test_no_platform_leads_anywhere_else(store, platform):
    """A platform is one plain segment."""
    with pytest.raises(ValueError, match="platform"):
        store.path("loss.reduce/grpo/two", platform)


def test_a_link_that_leads_out_of_the_store_is_refused(store, tmp_path):
    """A folder inside the store that is a link to elsewhere is neither read nor written through."""
    (store.root / "loss.reduce").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (store.root / "loss.reduce" / "grpo").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="grpo is a link"):
        store.read("loss.reduce/grpo/two", "any")


def test_what_is_written_is_read_back(store, granted):
    """A written golden is found under its case and platform and under no other."""
    path = store.write(GOLDEN, granted)
    assert render(GOLDEN).encode() == path.read_bytes()
    assert torch.tensor(0.75) == store.read(GOLDEN.case, "any").outcome.arrays["loss"]
    assert store.read(GOLDEN.case, "cpu-x") is None
    assert store.read("loss.reduce/grpo/three", "any") is None
    assert [(GOLDEN.case, "any")] == list(store.entries())
    assert {"any"} == store.platforms()


def test_a_golden_in_the_place_of_another_is_refused(store, granted):
    """A file copied to the place of another case says so instead of being compared with it."""
    path = store.write(GOLDEN, granted)
    path.rename(path.with_name("three.txt"))
    with pytest.raises(GoldenFormatError, match=r"three.txt:3: holds case loss.reduce/grpo/two on any"):
        store.read("loss.reduce/grpo/three", "any")


def test_a_stray_text_file_is_reported(store):
    """A file whose name is no case's is an error, not silence."""
    stray = store.root / "loss.reduce" / "grpo" / "any" / "Two Copy.txt"
    stray.parent.mkdir(parents=True)
    stray.write_text("")
    with pytest.raises(GoldenFormatError, match=r"Two Copy.txt:1"):
        list(store.entries())


def test_writing_needs_a_permit(store):
    """Nothing writes a golden with anything but the guard's permit, and nothing is left behind."""
    with pytest.raises(TypeError, match="permit"):
        store.write(GOLDEN, None)
    assert not list(store.root.rglob("*.txt"))


def test_a_failed_write_leaves_the_old_file(store, granted, monkeypatch):
    """When the last step fails the old bytes stand and no temporary file is left."""
    path = store.write(GOLDEN, granted)
    before = path.read_bytes()

    def broken(source, target):
        raise OSError("no space left")

    monkeypatch.setattr("verification.goldens.store.os.replace", broken)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "half", granted)
    assert before == path.read_bytes()
    assert [path] == list(path.parent.iterdir())


def test_removing_the_last_golden_removes_its_folder(store, granted):
    """A folder without goldens keeps no provenance either."""
    path = store.write(GOLDEN, granted)
    write_atomically(path.parent / provenance.FILE, provenance.render({RECORDING: {"two"}}), granted)
    store.remove(GOLDEN.case, "any", granted)
    assert not path.parent.exists()


def test_provenance_reads_back(tmp_path, granted):
    """What was written about two recordings is read back, each with its own goldens."""
    other = dataclasses.replace(RECORDING, baseline="e" * 40)
    content = {RECORDING: {"two", "three"}, other: {"four"}}
    write_atomically(tmp_path / provenance.FILE, provenance.render(content), granted)
    assert content == provenance.read(tmp_path)
    assert provenance.read(tmp_path / "nothing") == {}


def test_a_golden_recorded_anew_belongs_to_the_new_recording_alone():
    """Accepting some goldens of a folder leaves the origin of the others as it was."""
    new = dataclasses.replace(RECORDING, baseline="e" * 40)
    partly = provenance.moved({RECORDING: {"two", "three"}}, new, ["two", "four"])
    assert {RECORDING: {"three"}, new: {"two", "four"}} == partly
    assert {new: {"two", "three", "four"}} == provenance.moved(partly, new, ["three"])
    assert {new: {"two"}} == provenance.without(partly, ["three", "four"])


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2, "recordings": []}', '{"format": 1, "recordings": [{}]}'])
def test_damaged_provenance_is_refused_with_its_file(tmp_path, text):
    """A provenance file of another form names itself in the error."""
    (tmp_path / provenance.FILE).write_text(text)
    with pytest.raises(ProvenanceError, match=r"provenance.json: "):
        provenance.read(tmp_path)


def test_provenance_names_every_field(tmp_path):
    """The file is plain JSON with the baseline, the hashes, the environment and the command."""
    entry = json.loads(provenance.render({RECORDING: {"two"}}))["recordings"][0]
    expected = "baseline relax_tree corpus config platform torch capability threads command goldens"
    assert expected.split() == list(entry)
