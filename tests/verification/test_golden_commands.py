"""Recording, looking, accepting and rejecting goldens, in small checkouts made for the purpose."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.verification.repository import git
from verification.cases.case import Case
from verification.cli import main
from verification.goldens import exchange, provenance
from verification.goldens.changes import accept, by_stage, changes
from verification.goldens.documents import changes_document
from verification.goldens.guard import WritePermit, WriteRefused, permit
from verification.goldens.platform import ANY, platform_key
from verification.goldens.staging import RecordingError, drop, record, require_current, staged, staged_recording
from verification.goldens.store import GoldenStore
from verification.goldens.twice import in_process
from verification.revisions.checkout import Checkout
from verification.subjects.outcome import Failure, Outcome

REDUCE = Case("loss.reduce/grpo/two", "loss.reduce", "grpo", {"values": [1.0, 2.0]})
SIGNAL = Case("reward.signal/grpo/two", "reward.signal", "grpo", {"samples": []})
WRONG = Case("reward.normalize/gdpo/wrong", "reward.normalize", "gdpo", {"samples": []}, error=("empty",))
CASES = (REDUCE, SIGNAL, WRONG)
IDS = frozenset(case.id for case in CASES)


@dataclasses.dataclass
class Scripted:
    """A subject that gives prepared outcomes by case id; a callable is called for each run."""

    outcomes: dict[str, Outcome | Callable[[], Outcome] | None]
    name: str = "scripted"

    def run(self, case: Case) -> Outcome | None:
        outcome = self.outcomes[case.id]
        return outcome() if callable(outcome) else outcome


def outcomes(loss: float = 0.75) -> dict[str, Outcome | Callable[[], Outcome] | None]:
    return {
        REDUCE.id: Outcome(arrays={"loss": torch.tensor(loss, dtype=torch.float32)}),
        SIGNAL.id: Outcome(arrays={"signal": torch.tensor(True)}),
        WRONG.id: Outcome(failure=Failure("ValueError", "empty")),
    }


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    (tmp_path / "relax").mkdir()
    (tmp_path / "relax" / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return Checkout(tmp_path)


@pytest.fixture
def granted(checkout: Checkout) -> WritePermit:
    return permit(checkout, "HEAD", environment={})


def recorded(granted: WritePermit, subject: Scripted, cases=CASES) -> None:
    """Records and accepts everything."""
    store = record(granted, cases, in_process(subject))
    accept(granted, store, staged_recording(granted.checkout), IDS)


def kinds(granted: WritePermit, subject: Scripted, cases=CASES) -> dict[str, str]:
    """What recording ``subject`` anew would change, by case."""
    store = record(granted, cases, in_process(subject))
    found = changes(GoldenStore(granted.checkout.golden), store, platform_key(), {case.id for case in cases})
    return {change.case: change.kind for change in found}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_recording_stages_and_leaves_the_goldens_alone(granted):
    """A recording lies in the staging folder, under its platform, and golden/ is not touched."""
    store = record(granted, CASES, in_process(Scripted(outcomes())))
    expected = [(REDUCE.id, platform_key()), (WRONG.id, ANY), (SIGNAL.id, ANY)]
    assert expected == list(store.entries())
    assert not granted.checkout.golden.exists()
    assert granted.checkout.changes() == []  # git does not see the staging folder


def test_the_recording_says_where_it_comes_from(granted, checkout):
    """Baseline, tree and platform are those of the checkout and of this process."""
    record(granted, CASES, in_process(Scripted(outcomes())))
    recording = staged_recording(checkout)
    assert checkout.commit() == recording.baseline
    assert checkout.tree("relax") == recording.relax_tree
    assert (platform_key(), torch.__version__, 1) == (recording.platform, recording.torch, recording.threads)
    assert f"relax-verify golden regen --baseline {checkout.commit()}" == recording.command


def test_accepting_makes_goldens_with_provenance(granted, checkout):
    """Every golden is named by one recording in the provenance beside it."""
    recorded(granted, Scripted(outcomes()))
    store = GoldenStore(checkout.golden)
    assert len(list(store.entries())) == 3
    for case, platform in store.entries():
        path = store.path(case, platform)
        ((recording, names),) = provenance.read(path.parent).items()
        assert (granted.baseline, {path.stem}) == (recording.baseline, names)


def test_the_same_outcomes_change_nothing(granted):
    """A second recording of the same results has the same bytes."""
    recorded(granted, Scripted(outcomes()))
    assert {"same"} == set(kinds(granted, Scripted(outcomes())).values())


def test_one_ulp_is_a_change_of_one_ulp(granted):
    """The distance of a changed golden is stated, by case and by stage."""
    recorded(granted, Scripted(outcomes(0.75)))
    store = record(granted, CASES, in_process(Scripted(outcomes(0.75 + 2**-24))))
    found = changes(GoldenStore(granted.checkout.golden), store, platform_key(), IDS)
    (changed,) = [change for change in found if change.kind != "same"]
    assert (REDUCE.id, "changed", 1.0) == (changed.case, changed.kind, changed.ulps)
    assert {summary.stage: summary.ulps for summary in by_stage(found)} == {
        "loss.reduce": 1.0,
        "reward.normalize": None,
        "reward.signal": None,
    }


def test_the_report_lays_open_what_changed_and_nothing_else(granted, checkout):
    """Both outcomes of a changed golden stand side by side with their bits; a new golden has nothing to compare."""
    recorded(granted, Scripted(outcomes(0.75)), (REDUCE, SIGNAL))
    store = record(granted, CASES, in_process(Scripted(outcomes(0.5))))
    found = changes(GoldenStore(checkout.golden), store, platform_key(), IDS)
    by_id = {case.id: case for case in CASES}
    document = changes_document(found, granted.baseline, GoldenStore(checkout.golden), store, by_id)
    assert (document.verdict, document.exit_code) == ("GOLDENS 2 of 3 would change", 1)
    changed, new = document.findings
    assert (REDUCE.id, WRONG.id, ()) == (changed.case, new.case, new.evidence)
    cells = {cell for sheet in changed.evidence for row in sheet.rows for cell in row}
    heads = {name for sheet in changed.evidence for name in (sheet.title, *sheet.columns)}
    assert {"golden", "staged"} <= heads | cells
    assert {"3f400000", "3f000000"} <= {word.strip("(),").removeprefix("0x") for cell in cells for word in cell.split()}
    (histogram,) = document.histograms
    assert (histogram.title, sum(histogram.counts)) == ("loss.reduce", 1)


def test_every_kind_of_change_is_told_apart(granted):
    """Another message, other inputs, a new case and a case that is gone are four different things."""
    recorded(granted, Scripted(outcomes()), (REDUCE, WRONG, SIGNAL))
    now = outcomes()
    now[WRONG.id] = Outcome(failure=Failure("ValueError", "empty, said otherwise"))
    added = Case("roles.resolve/grpo/colocate", "roles.resolve", "grpo", {})
    now[added.id] = Outcome(texts={"roles": "actor=a:B"})
    altered = dataclasses.replace(REDUCE, inputs={"values": [1.0, 3.0]})
    assert {
        REDUCE.id: "inputs",
        WRONG.id: "rewritten",
        added.id: "new",
        SIGNAL.id: "gone",
    } == kinds(granted, Scripted(now), (altered, WRONG, added))


def test_a_case_that_came_to_hold_everywhere_leaves_its_old_place(granted):
    """When a case's outcome becomes the same on all platforms, its golden of this platform is gone."""
    recorded(granted, Scripted(outcomes()), (REDUCE,))
    refused = dataclasses.replace(REDUCE, error=("two",))
    store = record(granted, (refused,), in_process(Scripted(outcomes())))
    found = changes(GoldenStore(granted.checkout.golden), store, platform_key(), IDS)
    assert {(ANY, "new"), (platform_key(), "gone")} == {(change.platform, change.kind) for change in found}


def test_what_the_baseline_lacks_keeps_its_golden(granted, checkout):
    """An old baseline does not have every case: accepted whole, it removes only goldens that no case answers to."""
    recorded(granted, Scripted(outcomes()))
    before = tree(checkout.golden)
    older = Scripted({**outcomes(0.5), SIGNAL.id: None, WRONG.id: None})
    store = record(granted, CASES, in_process(older))
    taken = accept(granted, store, staged_recording(checkout), IDS - {WRONG.id})
    assert {(REDUCE.id, "changed"), (WRONG.id, "gone")} == {(change.case, change.kind) for change in taken}
    after = tree(checkout.golden)
    signal_path = "reward.signal/grpo/any/two.txt"
    assert before[signal_path] == after[signal_path]
    assert [name for name in after if "gdpo" in name] == []


@pytest.mark.parametrize("place", ["golden", ".golden-staging", ".golden-staging/unfinished", ".golden-staging/next"])
def test_a_link_in_place_of_a_folder_is_refused(granted, checkout, tmp_path_factory, place):
    """Nothing is recorded through a link that leads out of the checkout, and nothing out there is touched."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "kept").write_text("kept")
    (checkout.root / place).parent.mkdir(exist_ok=True)
    (checkout.root / place).symlink_to(outside)
    with pytest.raises(WriteRefused, match=rf"{re.escape(place)} is a link"):
        record(granted, CASES, in_process(Scripted(outcomes())))
    assert tree(outside) == {"kept": b"kept"}


@pytest.mark.parametrize("change", ["corpus", "config"])
def test_a_recording_of_other_cases_is_not_current(granted, checkout, change):
    """Cases or defaults that changed between recording and accepting are told, with the command that records anew."""
    record(granted, CASES, in_process(Scripted(outcomes())))
    recording = staged_recording(checkout)
    require_current(recording, CASES)
    with pytest.raises(RecordingError, match=r"changed since the staged recording of .*golden regen --baseline"):
        require_current(dataclasses.replace(recording, **{change: "sha256:" + "0" * 64}), CASES)
    with pytest.raises(RecordingError, match="changed since"):
        require_current(recording, (REDUCE, SIGNAL))


def test_goldens_of_another_platform_stay_while_they_answer_a_case(granted, checkout):
    """Another platform's golden survives a full acceptance, and goes once its case has other inputs."""
    recorded(granted, Scripted(outcomes()))
    store = GoldenStore(checkout.golden)
    foreign = dataclasses.replace(store.read(REDUCE.id, platform_key()), platform="cpu-torch2.13.0-neon-00000000")
    store.write(foreign, granted)
    recorded(granted, Scripted(outcomes()))
    assert (REDUCE.id, foreign.platform) in list(store.entries())
    recorded(granted, Scripted(outcomes()), (dataclasses.replace(REDUCE, inputs={"values": [9.0]}), SIGNAL, WRONG))
    assert (REDUCE.id, foreign.platform) not in list(store.entries())


def test_a_recording_on_a_gpu_leaves_other_platforms_alone(granted, checkout):
    """It adds its own goldens; of those that it does not hold only those are gone that no case answers to."""
    recorded(granted, Scripted(outcomes()))
    key = "cuda-torch2.13.0-sm90-00000000"
    store, staged_there = GoldenStore(checkout.golden), GoldenStore(checkout.root / "elsewhere")
    golden = dataclasses.replace(store.read(REDUCE.id, platform_key()), platform=key)
    staged_there.write(golden, granted)
    store.write(dataclasses.replace(golden, case="loss.reduce/grpo/three"), granted)
    found = {(change.case, change.platform): change.kind for change in changes(store, staged_there, key, IDS)}
    assert found == {(REDUCE.id, key): "new", ("loss.reduce/grpo/three", key): "gone"}


@pytest.mark.parametrize(("device", "words"), [("cuda:99", "no device cuda:99 here"), ("pretend", "those of the CPU")])
def test_goldens_of_no_gpu_are_refused(device, words, capsys):
    """A GPU that is not here and a device without bits of its own are told before anything else, with exit status 2."""
    assert main(["golden", "regen", "--baseline", "HEAD", "--device", device]) == 2
    assert words in capsys.readouterr().err


def test_accepting_a_pattern_takes_only_its_cases(granted, checkout):
    """The others keep their old bytes and their old provenance, and stay staged."""
    recorded(granted, Scripted(outcomes(0.75)))
    before = tree(checkout.golden)
    now = {**outcomes(0.5), SIGNAL.id: Outcome(arrays={"signal": torch.tensor(False)})}
    store = record(granted, CASES, in_process(Scripted(now)))
    taken = accept(granted, store, staged_recording(checkout), IDS, "reward.signal/*")
    assert [SIGNAL.id] == [change.case for change in taken]
    after = tree(checkout.golden)
    assert {"reward.signal/grpo/any/two.txt"} == {name for name in before if before[name] != after[name]}
    assert [REDUCE.id] == [
        c.case for c in changes(GoldenStore(checkout.golden), store, platform_key(), IDS) if c.kind != "same"
    ]


def test_what_was_accepted_before_is_not_accepted_again(granted, checkout):
    """Equal bytes of another recording are told as taken over, once; those of the same recording are not."""
    recorded(granted, Scripted(outcomes()))
    store, older = record(granted, CASES, in_process(Scripted(outcomes()))), staged_recording(checkout)
    assert accept(granted, store, older, IDS) == []
    newer = dataclasses.replace(older, baseline="a" * 40)
    assert [(SIGNAL.id, "same")] == [(c.case, c.kind) for c in accept(granted, store, newer, IDS, "reward.signal/*")]
    assert {REDUCE.id, WRONG.id} == {change.case for change in accept(granted, store, newer, IDS)}
    assert accept(granted, store, newer, IDS) == []


def test_a_result_that_varies_is_not_recorded(granted, checkout):
    """A case whose two runs differ is refused by name and the staged recording of before stands."""
    record(granted, CASES, in_process(Scripted(outcomes())))
    before = tree(staged(checkout).root)
    values = iter([torch.tensor(1.0), torch.tensor(2.0)])
    unsteady = {**outcomes(), REDUCE.id: lambda: Outcome(arrays={"loss": next(values)})}
    with pytest.raises(RecordingError, match=r"loss.reduce/grpo/two gave two results in two runs: loss: "):
        record(granted, CASES, in_process(Scripted(unsteady)))
    assert before == tree(staged(checkout).root)


def test_a_case_that_the_subject_does_not_have_is_left_out(granted):
    """No golden says that something was not there."""
    store = record(granted, CASES, in_process(Scripted({**outcomes(), SIGNAL.id: None})))
    assert SIGNAL.id not in [case for case, _ in store.entries()]


def test_rejecting_drops_what_is_staged(granted, checkout):
    """After a rejection there is nothing to accept, and saying so names the command that records."""
    record(granted, CASES, in_process(Scripted(outcomes())))
    assert drop(checkout)
    assert not drop(checkout)
    with pytest.raises(RecordingError, match=r"nothing is staged.*golden regen"):
        staged(checkout)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("step", [1, 2])
def test_an_interruption_at_any_rename_leaves_the_old_goldens(granted, checkout, monkeypatch, step):
    """Where folders cannot be exchanged: interrupted before or between two renames, every old byte stays in place."""
    recorded(granted, Scripted(outcomes(0.75)))
    before = tree(checkout.golden)
    store = record(granted, CASES, in_process(Scripted(outcomes(0.5))))
    rename, calls = os.rename, []

    def interrupted(source, target):
        calls.append(target)
        if len(calls) == step:
            raise Killed
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(exchange, "_exchanged", lambda one, other: False)
        patch.setattr(exchange.os, "rename", interrupted)
        with pytest.raises(Killed):
            accept(granted, store, staged_recording(checkout), IDS)
    assert before == tree(checkout.golden)


DIE = """
import os, signal, sys
from pathlib import Path
from verification.goldens import exchange
from verification.goldens.changes import accept
from verification.revisions.checkout import Checkout
from verification.goldens.guard import permit
from verification.goldens.staging import staged, staged_recording

rename, left = os.rename, int(sys.argv[2])
def dying(source, target):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
exchange._exchanged = lambda one, other: False
exchange.os.rename = dying
checkout = Checkout(Path(sys.argv[1]))
accept(permit(checkout, "HEAD", ignore="golden", environment={}), staged(checkout), staged_recording(checkout), ())
"""


@pytest.mark.parametrize("step", [1, 2])
def test_killed_half_way_the_old_goldens_stand(granted, checkout, step):
    """Where folders cannot be exchanged: killed at a rename, the old set is readable, the next acceptance completes."""
    recorded(granted, Scripted(outcomes(0.75)))
    before = tree(checkout.golden)
    record(granted, CASES, in_process(Scripted(outcomes(0.5))))
    done = subprocess.run([sys.executable, "-c", DIE, str(checkout.root), str(step)], cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    assert before == tree(exchange.standing(checkout))
    accept(granted, staged(checkout), staged_recording(checkout), IDS)
    loss = GoldenStore(checkout.golden).read(REDUCE.id, platform_key()).outcome.arrays["loss"]
    assert torch.tensor(0.5) == loss
    assert not (checkout.staging / "previous").exists()
