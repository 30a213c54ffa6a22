"""Process subjects: the right code and no other, what old code lacks, and every way in which a child may end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

import relax
from verification.cases import corpus, find
from verification.cases.case import Case
from verification.examine import examine, subject_named
from verification.judges.bits import judge_bits
from verification.revisions.checkout import Checkout, CheckoutError
from verification.revisions.source import Source, of_folder, of_revision, working_tree
from verification.subjects.child import PathsAlone
from verification.subjects.child_process import ChildProcess, environment
from verification.subjects.live import live_subject
from verification.subjects.origin import strangers
from verification.subjects.other_revision import imported
from verification.subjects.outcome import Outcome
from verification.subjects.process import BUNDLE, ProcessSubject, SubjectFailed

ROOT = Checkout.here().root
REDUCERS = "algorithms/formulas/reducers.py"

# A call whose first value says what it does; any other value is doubled.
PLAYER = """
import os, signal, sys, time
def reduce_loss(args, *, values, loss_masks, full_loss_masks=None):
    number = int(values[0][0])
    if number == 1: os.kill(os.getpid(), signal.SIGSEGV)
    if number == 2: time.sleep(600)
    if number == 3: os._exit(7)
    if number == 4:
        print("to standard output"); os.write(1, b"and beneath it\\n"); os.system("echo from a child")
        assert sys.stdin.read() == ""
    if number == 5: from relax import late
    if number == 6: raise NotImplementedError("not yet")
    if number == 7: raise SystemExit("enough")
    return 2 * values[0].sum()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAX_VERIFY_CACHE", str(tmp_path / "cache"))


def source_of(folder: Path, files: Mapping[str, str]) -> Source:
    """A checkout whose relax/ has these files, with an empty __init__.py in each folder that has none."""
    for name, text in files.items():
        path = folder / "relax" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()
        path.write_text(text)
    return of_folder(folder)


def play(number: float, name: str | None = None, **inputs: object) -> Case:
    values = {"values": [np.array([number], dtype=np.float32)], "loss_masks": None, **inputs}
    return Case(f"loss.reduce/grpo/{name or f'play-{number:g}'}", "loss.reduce", "grpo", values)


def loss(outcome: Outcome | None) -> float:
    assert outcome is not None
    assert outcome.failure is None, outcome.failure
    return outcome.arrays["loss"].item()


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessSubject]:
    """One for all tests, since a start takes seconds; a test that ends its process leaves the next one to a new one."""
    folder = tmp_path_factory.mktemp("process")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELAX_VERIFY_CACHE", str(folder / "cache"))
        source = source_of(folder / "player", {REDUCERS: PLAYER})
    with ProcessSubject(source, deadline=3) as subject:
        yield subject


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 30) -> bool:
    """Whether the process ends within the time."""
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_alive(pid)


# The right code


def test_the_working_tree_gives_the_same_bits_in_a_process_of_its_own():
    """Cases of every stage, in several bundles: arrays, gradients, aliases, changed inputs, texts and failures."""
    chosen = corpus()[::25]
    assert len(chosen) > 2 * BUNDLE
    assert {case.stage for case in corpus()} == {case.stage for case in chosen}
    told: list[tuple[int, int]] = []
    with ProcessSubject(working_tree(Checkout.here())) as subject:
        outcomes = subject.run_all(chosen, lambda done, total: told.append((done, total)))
    assert [case.id for case in chosen] == list(outcomes)
    assert told[0] == (BUNDLE, len(chosen))
    assert told[-1] == (len(chosen), len(chosen))
    live = live_subject()
    for case in chosen:
        outcome, expected = outcomes[case.id], live.run(case)
        assert outcome is not None, case.id
        assert all(finding.agrees for finding in judge_bits(case, outcome, expected, "live")), case.id
        assert (expected.failure, expected.texts, expected.aliases) == (outcome.failure, outcome.texts, outcome.aliases)


def test_provenance_names_what_ran(player):
    """The file of relax lies in the source, that of the harness in the working tree; torch and platform are told."""
    told = player.provenance
    assert Path(told.relax_file) == player.source.root / "relax" / "__init__.py"
    assert Path(told.verification_file) == ROOT / "verification" / "__init__.py"
    assert told.torch == torch.__version__
    assert told.platform.startswith("cpu-torch")
    assert told.calls == ("reduce_loss",)
    assert told.source == player.source


def test_two_sources_are_told_apart(tmp_path):
    """The same call of two sources gives two results, though the working tree has a relax of its own."""
    doubled = source_of(tmp_path / "a", {REDUCERS: PLAYER})
    tripled = source_of(tmp_path / "b", {REDUCERS: PLAYER.replace("2 * values", "3 * values")})
    with ProcessSubject(doubled) as one, ProcessSubject(tripled) as other:
        assert loss(one.run(play(10))) == 20
        assert loss(other.run(play(10))) == 30


def test_python_settings_of_the_parent_do_not_reach_the_child(tmp_path, monkeypatch):
    """PYTHONPATH and PYTHONSTARTUP of whoever starts the harness say nothing about a revision."""
    source_of(tmp_path / "planted", {REDUCERS: "def reduce_loss(*a, **k): return 0.0"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "planted"))
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    kept = environment(Path("/source"), Path("/harness"))
    assert {name for name in kept if name.startswith("PYTHON")} == {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    assert kept["PYTHONPATH"] == "/source:/harness"
    monkeypatch.chdir(tmp_path / "planted")
    with ProcessSubject(source_of(tmp_path / "real", {REDUCERS: PLAYER})) as subject:
        assert loss(subject.run(play(10))) == 20


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


# What old code lacks


def test_what_a_source_lacks_is_not_there(tmp_path):
    """A module, an attribute, an algorithm, a keyword with a value: None. A keyword without a value is left out."""
    files = {
        "algorithms/spec.py": "def list_algorithm_names(): return ('grpo',)\n",
        "algorithms/advantages.py": "",
        "algorithms/policy.py": "def policy_objective(args, **keywords): return args.advantage_estimator\n",
        REDUCERS: "def reduce_loss(args, *, values): return 2 * values[0].sum()\n",
    }
    cases = [
        play(10),
        play(10, "with-mask", loss_masks=[np.ones(1, dtype=np.float32)]),
        Case("loss.reduce/gdpo/unlisted", "loss.reduce", "gdpo", play(10).inputs),
        Case("loss.reduce/invented/never-listed", "loss.reduce", "invented", play(10).inputs),
        find("kl.estimate/grpo/k1-coef0.1"),
        next(case for case in corpus() if case.stage == "advantage.normalize"),
    ]
    with ProcessSubject(source_of(tmp_path / "old", files)) as subject:
        outcomes = list(subject.run_all(cases).values())
    assert [one is None for one in outcomes] == [False, True, True, False, True, True]
    assert loss(outcomes[0]) == 20


def test_not_implemented_is_a_failure_of_a_revision(player):
    """The code is there and refuses to run: that is no absence, as it would be none in the working tree."""
    outcome = player.run(play(6))
    assert outcome is not None
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.message) == ("NotImplementedError", "not yet")


def test_code_that_does_not_import_is_an_error(tmp_path):
    """The error names the source and the reason, and nothing of it runs."""
    subject = ProcessSubject(source_of(tmp_path / "broken", {REDUCERS: f"{PLAYER}\nimport no_such_library\n"}))
    with pytest.raises(SubjectFailed, match=r"checkout .*/broken broke: .*No module named 'no_such_library'"):
        subject.started()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import no_such_library", ModuleNotFoundError),
        ("import relax.trial.forgotten", ModuleNotFoundError),
        ("import relax.tri", ModuleNotFoundError),
        ("from relax.trial import forgotten", ImportError),
        ("def broken(:", SyntaxError),
        ("call = None", None),
        ("", None),
    ],
)
def test_only_the_very_module_or_attribute_may_be_missing(tmp_path, monkeypatch, text, error):
    """What a module needs and does not find is its fault, whatever it is called."""
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "__init__.py").touch()
    (tmp_path / "trial" / "there.py").write_text(text)
    monkeypatch.setattr(relax, "__path__", [*relax.__path__, str(tmp_path)])
    try:
        with contextlib.nullcontext() if error is None else pytest.raises(error):
            assert imported("relax.trial.there", "call") is None
        assert imported("relax.trial.gone", "call") is None
        assert imported("relax.nowhere.gone", "call") is None
    finally:
        for name in [name for name in sys.modules if name.startswith("relax.trial")]:
            del sys.modules[name]


def test_a_source_without_any_call_is_an_error(tmp_path):
    """Nothing of it can be judged, which must not read as: nothing differs."""
    with pytest.raises(SubjectFailed, match="has none of the public calls"):
        ProcessSubject(source_of(tmp_path / "empty", {"other.py": ""})).started()


def before_log_probs() -> Source:
    """The commit before log-probs and entropy were there."""
    found = subprocess.run(
        ["git", "-C", ROOT, "log", "--diff-filter=A", "--format=%H", "--", "relax/algorithms/formulas/log_probs.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        return of_revision(f"{(found.stdout.split() or ['none'])[-1]}~1", Checkout(ROOT))
    except CheckoutError as error:
        pytest.skip(f"the history of this project is not here: {error}")


def test_an_old_revision_of_this_project_lacks_the_newer_stage():
    """Before log-probs and entropy were there, their cases are not there, and the others have the bits of today."""
    lacking = [case for case in corpus() if case.stage == "logprob.entropy"][:3]
    known = [find("kl.estimate/grpo/k1-coef0.1"), *(case for case in corpus() if case.stage == "policy.loss")][:3]
    with ProcessSubject(before_log_probs()) as subject:
        assert "log_probs_and_entropy" not in subject.provenance.calls
        outcomes = subject.run_all([*lacking, *known])
    assert [outcomes[case.id] for case in lacking] == [None] * 3
    for case in known:
        outcome = outcomes[case.id]
        assert outcome is not None
        assert all(finding.agrees for finding in judge_bits(case, outcome, live_subject().run(case), "live")), case.id


# Every end


@pytest.mark.parametrize(
    ("number", "reason"),
    [(1, "died of SIGSEGV.*Segmentation fault"), (2, "took longer than 3 seconds.*reduce_loss"), (3, "with status 7")],
)
def test_a_child_that_dies_or_hangs_is_reported_with_the_case(player, number, reason):
    """The error names the subject and exactly the case, with the last words; the subject can be used again."""
    cases = [play(10), play(11), play(number, "at-fault"), play(12)]
    with pytest.raises(SubjectFailed, match=f"(?s)^checkout .*player .*{reason}") as failed:
        player.run_all(cases)
    assert failed.value.case == "loss.reduce/grpo/at-fault"
    assert "on case loss.reduce/grpo/at-fault" in str(failed.value)
    assert loss(player.run(play(10))) == 20


def test_a_child_that_ignores_its_own_deadline_is_killed(player, monkeypatch):
    """A process that is stopped can neither answer nor end itself."""
    monkeypatch.setattr("verification.subjects.child_process._GRACE", 0.5)
    player.started()
    pid = player.pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(SubjectFailed, match="gave no answer within 3 seconds and was killed"):
        player.run(play(10))
    assert not is_alive(pid)


def test_prints_of_the_code_do_not_disturb_the_protocol(player):
    """Standard output, the descriptor beneath it and that of a grandchild are not the line that answers go through."""
    assert loss(player.run(play(4))) == 8
    assert loss(player.run(play(10))) == 20


def test_an_exit_of_the_code_is_a_failure_of_the_case(player):
    """SystemExit is what the command line of relax gives, and ends no child."""
    outcome = player.run(play(7))
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.kind == "SystemExit(enough)"


def test_a_case_that_cannot_travel_is_named(player):
    """A live object in a case has no exact form: the error says which case and where."""
    odd = Case("loss.reduce/grpo/live", "loss.reduce", "grpo", {"values": [object()]})
    with pytest.raises(SubjectFailed, match=r"cannot be given a case: loss\.reduce/grpo/live: inputs\['values'\]\[0\]"):
        player.run_all([*(play(number) for number in range(10, 10 + BUNDLE)), odd])
    assert loss(player.run(play(200))) == 400  # and not the answer to the bundle before


def test_closing_ends_the_process_and_removes_its_folder(player):
    """Nothing is left: neither the process nor the files that it was given; the next call starts another."""
    player.run(play(10))
    pid, folder = player.pid, player.folder
    assert is_alive(pid)
    assert folder.is_dir()
    assert sorted(path.name for path in folder.iterdir()) == ["stderr"]
    player.close()
    assert not is_alive(pid)
    assert not folder.exists()
    assert loss(player.run(play(10))) == 20
    assert player.pid != pid


PARENT = """
import sys
from pathlib import Path
from tests.verification.test_process_subject import play
from verification.revisions.source import of_folder
from verification.subjects.process import ProcessSubject
subject = ProcessSubject(of_folder(Path(sys.argv[1]))).started()
print(subject.pid, subject.folder, flush=True)
subject.run(play(int(sys.argv[2])))
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [10, 2])
def test_the_child_ends_with_its_parent(player, number):
    """The parent is killed, the child idle or in the middle of a case that hangs: no process and no folder is left."""
    folder = player.source.root
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder), str(number)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    pid, temporary = parent.stdout.readline().split()
    if number == 10:
        assert parent.stdout.readline() == "done\n"
    else:
        time.sleep(1)
    assert is_alive(int(pid))
    parent.kill()
    parent.communicate()
    assert gone(int(pid))
    assert not Path(temporary).exists()


def test_subjects_run_in_threads_and_one_subject_serves_several(tmp_path):
    """Calls of one subject from two threads wait for each other, and each gets its own results."""
    subjects = [
        ProcessSubject(source_of(tmp_path / f"x{factor}", {REDUCERS: PLAYER.replace("2 * v", f"{factor} * v")}))
        for factor in (2, 3)
    ]
    results: dict[tuple[int, int], list[float]] = {}

    def work(which: int, offset: int) -> None:
        cases = [play(100 * offset + number) for number in range(10, 10 + 2 * BUNDLE)]
        results[which, offset] = [loss(one) for one in subjects[which].run_all(cases).values()]

    threads = [threading.Thread(target=work, args=(which, offset)) for which in (0, 1) for offset in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (which, offset), found in results.items():
        expected = [(which + 2.0) * (100 * offset + number) for number in range(10, 10 + 2 * BUNDLE)]
        assert expected == found
    assert len(results) == 4
    for subject in subjects:
        subject.close()


# By name


def test_a_subject_by_name_is_judged_like_any_other(tmp_path):
    """The judges run on a checkout by name: a source that doubles every loss differs, and is no problem of theirs."""
    source_of(tmp_path / "player", {REDUCERS: PLAYER})
    name = f"checkout:{tmp_path / 'player'}"
    case = next(case for case in corpus() if case.stage == "loss.reduce" and case.error is None)
    found = examine(case, name)
    assert found.problems == []
    assert any(one.judge == "bits" and not one.agrees for one in found.comparisons)
    assert examine(find("kl.estimate/grpo/k1-coef0.1"), name).absent == {name: 1}
    subject_named(name).close()
    subject_named.cache_clear()


@pytest.mark.parametrize("name", ["revision:nope", "checkout:/nowhere", "checkout:BROKEN"])
def test_a_subject_that_cannot_be_had_is_a_usage_error(tmp_path, name):
    """Nothing is judged, and the message names what was asked for."""
    source_of(tmp_path / "broken", {REDUCERS: "import no_such_library"})
    name = name.replace("BROKEN", str(tmp_path / "broken"))
    with pytest.raises(ValueError, match=f"subject '{name}'"):
        subject_named(name)


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
