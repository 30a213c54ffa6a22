"""Process subjects run the right code and no other: no module from elsewhere, no compiled code, no finder's."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys

import pytest

import relax
from tests.verification.player import PLAYER, REDUCERS, loss, play, source_of
from verification.revisions.checkout import Checkout
from verification.revisions.source import of_folder
from verification.subjects.child import PathsAlone
from verification.subjects.child_process import ChildProcess
from verification.subjects.origin import strangers
from verification.subjects.process import ProcessSubject, SubjectFailed

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Checkout.here().root


def test_a_relax_of_the_working_tree_that_would_win_is_refused(tmp_path):
    """A relax without __init__.py gives way to any other on the path: the child notices before it runs anything."""
    (tmp_path / "bare" / "relax").mkdir(parents=True)
    (tmp_path / "bare" / "relax" / "only.py").touch()
    subject = ProcessSubject(of_folder(tmp_path / "bare"))
    with pytest.raises(SubjectFailed, match=rf"relax must come from .*: relax from {ROOT}/relax/__init__\.py"):
        subject.run(play(10))


def test_a_planted_module_is_refused(tmp_path):
    """A module from elsewhere, put into the path of the package: neither its calls nor any other are used."""
    planted = source_of(tmp_path / "planted", {REDUCERS: PLAYER}).root / "relax"
    extended = f"__path__.append({str(planted)!r})\n"
    subject = ProcessSubject(source_of(tmp_path / "real", {"__init__.py": extended, "algorithms2/x.py": ""}))
    with pytest.raises(
        SubjectFailed, match=rf"broke: ImportError: relax must come from .*relax\.algorithms from {planted}"
    ):
        subject.run(play(10))


def test_a_module_planted_late_is_refused_on_the_case_that_loads_it(tmp_path):
    """Modules load late: they are looked at again after each bundle."""
    planted = source_of(tmp_path / "planted", {"late.py": ""}).root / "relax"
    extended = f"__path__.append({str(planted)!r})\n"
    with ProcessSubject(source_of(tmp_path / "real", {REDUCERS: PLAYER, "__init__.py": extended})) as subject:
        assert loss(subject.run(play(10))) == 20
        with pytest.raises(SubjectFailed, match=rf"relax\.late from {planted}/late\.py") as refused:
            subject.run(play(5))
    assert refused.value.case == play(5).id


@pytest.mark.parametrize("foreign", ["relax", "verification"])
def test_the_parent_looks_for_itself_at_what_the_child_tells(player, monkeypatch, foreign):
    """A child whose own check failed to notice is still found out, and its answer is not used."""
    files = {"relax": player.source.root / "relax/__init__.py", "verification": ROOT / "verification/__init__.py"}
    told = {name: str(file) for name, file in files.items()} | {foreign: f"/elsewhere/{foreign}/__init__.py"}
    hello = {
        "verification": told["verification"],
        "python": "3",
        "torch": "2",
        "platform": "cpu",
        "calls": ["reduce_loss"],
    }
    answer = {"hello": hello, "relax": {"relax": [told["relax"]]}}
    monkeypatch.setattr(ChildProcess, "receive", lambda *_: answer)
    with pytest.raises(SubjectFailed, match=f"{foreign} from /elsewhere/{foreign}/__init__.py"):
        ProcessSubject(player.source).started()


def test_strangers_are_modules_from_elsewhere_or_from_nowhere(tmp_path):
    """A neighbour whose name begins alike is elsewhere; what has neither file nor folder is from nowhere."""
    inside, neighbour = tmp_path / "root", tmp_path / "root-2"
    places = {
        "relax": [f"{inside}/relax/__init__.py"],
        "relax.a": [f"{neighbour}/relax/a.py"],
        "relax.b": [],
        "relax.c": [f"{inside}/relax/c", f"{inside}/../elsewhere"],
    }
    told = strangers(places, inside)
    assert [line.split()[0] for line in told] == ["relax.a", "relax.b", "relax.c"]


def test_compiled_code_is_neither_written_nor_read(tmp_path):
    """Compiled code of other sources, made to look current, changes nothing; none is left in the source."""
    source = source_of(tmp_path / "real", {REDUCERS: PLAYER})
    path = source.root / "relax" / REDUCERS
    stale = tmp_path / "stale.py"
    stale.write_text(PLAYER.replace("2 * values", "9 * values"))
    os.utime(stale, (path.stat().st_mtime, path.stat().st_mtime))
    compile_it = f"import py_compile; py_compile.compile({str(stale)!r}, cfile=CFILE, dfile='x')"
    cfile = path.parent / "__pycache__" / f"reducers.{sys.implementation.cache_tag}.pyc"
    subprocess.run([sys.executable, "-c", compile_it.replace("CFILE", repr(str(cfile)))], check=True)
    with ProcessSubject(source) as subject:
        assert loss(subject.run(play(10))) == 20
    assert [file.name for file in source.root.rglob("*.pyc")] == [cfile.name]


def test_a_finder_of_an_editable_installation_fills_no_gap(monkeypatch):
    """What relax lacks on the path is not there, though a later finder would offer the working tree's."""

    class Offers:
        def find_spec(self, name, path, target=None):
            return importlib.util.spec_from_file_location(name, relax.__file__)

    monkeypatch.setattr(sys, "meta_path", [PathsAlone(), *sys.meta_path, Offers()])
    assert importlib.util.find_spec("elsewhere_entirely") is not None
    with pytest.raises(ModuleNotFoundError) as missing:
        importlib.import_module("relax.nowhere.at_all")
    assert missing.value.name == "relax.nowhere"
