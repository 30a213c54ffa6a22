"""The mutants as data, and the campaign on a small checkout whose check is a script of ten lines."""

from __future__ import annotations

import ast
import json
import os
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import verification.mutants
from verification.cases import corpus
from verification.cli import main
from verification.mutants import MUTANTS, Mutant, StaleMutant
from verification.mutants import campaign as campaign_module
from verification.mutants.campaign import Result, UnfitCheckout, run_campaign
from verification.mutants.workspace import Workspace, WorkspaceError
from verification.ranks.cases import rank_cases
from verification.revisions.checkout import Checkout

# A check that judges one number: 1 is right, 2 differs, 3 says nothing, 4 hangs, 5 is 1 in other words, 6 is the
# harness failing.
FAKE_CHECK = """
import json, os, sys, time
from relax import NUMBER
report = {"cases": 7, "judges": [{"judge": "rounding", "against": "oracle", "differences": 0}], "problems": []}
if NUMBER == 2:
    report["judges"] = [{"judge": "rounding", "against": "oracle", "differences": 3},
                        {"judge": "bits", "against": "frozen", "differences": 2}]
if NUMBER == 3:
    sys.exit("nothing to say")
if NUMBER == 4:
    open(os.environ["FAKE_CHECK_ID"], "w").write(str(os.getpid()))
    time.sleep(600)
if NUMBER == 6:
    report["problems"] = [{"case": "a/b/c", "where": "oracle", "message": "it broke"}]
with open(sys.argv[sys.argv.index("--json") + 1], "w") as file:
    json.dump(report, file)
print("VERDICT different (5)" if NUMBER == 2 else "VERDICT equivalent")
sys.exit({2: 1, 6: 2}.get(NUMBER, 0))
"""


def number(new: str, old: str = "NUMBER = 1") -> Mutant:
    return Mutant(
        name=f"number-{new}", file="relax/__init__.py", old=old, new=f"NUMBER = {new}", reason="-", checks=("*",)
    )


@pytest.fixture
def small_checkout(tmp_path, monkeypatch) -> Path:
    """A checkout with one number in it; temporary folders go to ``temporary`` beside it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("FAKE_CHECK_ID", str(tmp_path / "process-id"))
    source = tmp_path / "checkout"
    for package, text in (("relax", "NUMBER = 1\n"), ("verification", "")):
        (source / package).mkdir(parents=True)
        (source / package / "__init__.py").write_text(text)
    (source / "verification" / "__main__.py").write_text(FAKE_CHECK)
    return source


def nothing_left(source: Path) -> bool:
    return (
        not list((source.parent / "temporary").iterdir())
        and (source / "relax" / "__init__.py").read_text(encoding="utf-8") == "NUMBER = 1\n"
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies(mutant):
    """Each edit finds its text exactly once in the code as it is now, changes what the code does, and can be parsed."""
    source = (Checkout.here().root / mutant.file).read_text(encoding="utf-8")
    edited = mutant.applied_to(source)
    assert ast.dump(ast.parse(edited)) != ast.dump(ast.parse(source))


def test_every_mutant_has_a_name_of_its_own():
    """Names are unique, and so are the edits."""
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS})
    assert len(MUTANTS) == len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS})


def test_every_mutant_is_covered():
    """Each pattern chooses a case, or a rank case, each test file exists, and no mutant goes without any."""
    ids, on_ranks = [case.id for case in corpus()], [case.id for case in rank_cases()]
    for mutant in MUTANTS:
        assert mutant.checks or mutant.ranks or mutant.tests, mutant.name
        for patterns, known in ((mutant.checks, ids), (mutant.ranks, on_ranks)):
            for pattern in patterns:
                assert any(fnmatchcase(one, pattern) for one in known), (mutant.name, pattern)
        assert all((Checkout.here().root / test).is_file() for test in mutant.tests), mutant.name


@pytest.mark.parametrize(("source", "count"), [("x = 2\n", "0 times"), ("a = 1\nb = 1\n", "2 times")])
def test_an_edit_that_does_not_fit_is_stale(source, count):
    """Text that is gone, or there twice, is an error that names the mutant, the file and the number."""
    mutant = Mutant(name="one", file="relax/some.py", old=" = 1", new=" = 3", reason="-")
    with pytest.raises(StaleMutant, match=f"mutant one is stale: .* occurs {count} in relax/some.py"):
        mutant.applied_to(source)


def test_a_copy_is_put_back_even_after_an_error(small_checkout, tmp_path):
    """Inside the context the file is the mutant's, afterwards it is what it was, whatever happened in between."""
    workspace = Workspace.copied_from(small_checkout, tmp_path / "copy")
    file = workspace.root / "relax" / "__init__.py"

    def go_wrong() -> None:
        with workspace.mutated(number("2")):
            assert file.read_text(encoding="utf-8") == "NUMBER = 2\n"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        go_wrong()
    assert file.read_text(encoding="utf-8") == "NUMBER = 1\n"


def test_a_child_that_imports_another_relax_is_refused(small_checkout, tmp_path):
    """Where relax would come from outside the copy, the campaign says so and judges nothing."""
    workspace = Workspace.copied_from(small_checkout, tmp_path / "copy")
    inside = workspace.root / "verification" / "__init__.py"
    workspace.require_own(f"{workspace.root / 'relax' / '__init__.py'}\n{inside}\n")
    with pytest.raises(WorkspaceError, match="would import"):
        workspace.require_own(f"{small_checkout / 'relax' / '__init__.py'}\n{inside}\n")
    with pytest.raises(WorkspaceError, match="would import nothing"):
        workspace.require_own("")


def test_no_checkout_is_an_error(tmp_path):
    """A folder without the two packages is refused by name."""
    with pytest.raises(WorkspaceError, match="has no folder relax nor verification"):
        Workspace.copied_from(tmp_path, tmp_path / "copy")


def test_the_campaign_tells_what_became_of_each(small_checkout):
    """Killed with its judges, survived, stale, unjudged: each mutant has its own result, in the order given."""
    mutants = [number("2"), number("5"), number("9", old="NUMBER = 8"), number("3"), number("6")]
    said: list[str] = []
    results = run_campaign(mutants, source=small_checkout, jobs=2, progress=said.append)
    assert [result.status for result in results] == ["killed", "survived", "stale", "unjudged", "unjudged"]
    assert results[0].judges == {"rounding": 3, "bits/frozen": 2}
    assert (results[0].cases, results[1].cases) == (7, 7)
    assert "occurs 0 times" in results[2].detail
    assert "gave no report (exit 1): nothing to say" in results[3].detail
    assert "a/b/c: oracle: it broke" in results[4].detail
    assert said[0] == "the unmutated copy holds on the 7 cases that cover the mutants"
    assert 1 + len(mutants) == len(said)
    assert nothing_left(small_checkout)


def test_a_child_ends_at_its_deadline(small_checkout):
    """A mutant that makes the check hang is not judged; its process is gone, and so are the copies."""
    results = run_campaign([number("4")], source=small_checkout, deadline=3)
    assert [result.status for result in results] == ["unjudged"]
    assert results[0].detail == "relax-verify check did not end within 3 s"
    assert_gone(small_checkout)


def test_an_interrupted_campaign_leaves_nothing(small_checkout):
    """An interrupt ends the children that still run; neither processes nor copies are left."""

    def interrupt(line: str) -> None:
        if "killed" in line:
            wait_for(small_checkout.parent / "process-id")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_campaign([number("4"), number("2")], source=small_checkout, jobs=2, progress=interrupt)
    assert_gone(small_checkout)


def wait_for(path: Path) -> None:
    end = time.monotonic() + 30
    while not (path.exists() and path.read_text(encoding="utf-8")):
        assert time.monotonic() < end
        time.sleep(0.01)


def assert_gone(source: Path) -> None:
    process = int((source.parent / "process-id").read_text(encoding="utf-8"))
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert nothing_left(source)


@pytest.mark.parametrize(("standing", "words"), [("2", "differs already: .*rounding"), ("6", "cannot be judged")])
def test_code_that_differs_as_it_stands_is_refused(small_checkout, standing, words):
    """Where the unmutated copy is not equivalent no mutant is tried."""
    (small_checkout / "relax" / "__init__.py").write_text(f"NUMBER = {standing}\n")
    with pytest.raises(UnfitCheckout, match=words):
        run_campaign([number("5", old=f"NUMBER = {standing}")], source=small_checkout)


@pytest.mark.parametrize(
    ("numbers", "status", "last"),
    [
        (["2"], 0, "MUTANTS killed 1 of 1"),
        (["2", "5"], 1, "MUTANTS killed 1 of 2, survived 1"),
        (["2", "3"], 2, "MUTANTS killed 1 of 2, unjudged 1"),
    ],
)
def test_the_verb_gives_an_exit_status(small_checkout, monkeypatch, capsys, numbers, status, last):
    """0 where all were killed, 1 where one survived, 2 where one could not be judged; the last line can be grepped."""
    monkeypatch.setattr(verification.mutants, "MUTANTS", tuple(number(one) for one in numbers))
    monkeypatch.setattr(Checkout, "here", classmethod(lambda cls: cls(small_checkout)))
    file = small_checkout.parent / "results.json"
    assert status == main(["mutants", "--json", str(file)])
    out = capsys.readouterr().out
    assert last == out.splitlines()[-1]
    assert "bits/frozen 2, rounding 3" in out
    assert ("SURVIVED number-5 (relax/__init__.py): looked at: *" in out) == ("5" in numbers)
    written = json.loads(file.read_text(encoding="utf-8"))
    assert [f"number-{one}" for one in numbers] == [one["mutant"]["name"] for one in written]


def test_names_choose_mutants(monkeypatch, capsys):
    """--name takes shell patterns and may be repeated; a pattern that chooses none is a usage error."""
    tried: list[list[str]] = []

    def note(mutants, **_):
        tried.append([mutant.name for mutant in mutants])
        return [Result(mutant, "killed", {"bits/frozen": 1}) for mutant in mutants]

    monkeypatch.setattr(campaign_module, "run_campaign", note)
    assert main(["mutants", "--name", "clip-min-*", "--name", "kl-sign"]) == 0
    assert tried == [["kl-sign", "clip-min-for-max"]]
    capsys.readouterr()
    assert main(["mutants", "--name", "no-such-mutant"]) == 2
    assert "no mutant matches no-such-mutant" in capsys.readouterr().err
    assert main(["mutants", "--list", "--name", "kl-sign"]) == 0
    assert "relax/algorithms/formulas/kl.py: reference minus policy" in capsys.readouterr().out
    assert len(tried) == 1
