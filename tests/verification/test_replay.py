"""``relax-verify replay``: the calls of a trace against the live code, differences named, damage refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from relax.core.trace import INDEX
from tests.verification.traces import ADVANTAGES, plant, reseal, write_trace
from verification.cli import main
from verification.examine import LIVE, subject_named


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace to look at, and to damage."""
    write_trace(tmp_path / "trace")
    return tmp_path / "trace"


class TestReplay:
    def test_equivalent(self, trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The same code gives the same bits: tables, and the verdict last."""
        assert main(["replay", str(trace)]) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[-1] == "VERDICT equivalent"
        assert "advantage.estimate" in out
        assert "frozen" in out

    def test_planted_result(self, trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """One advantage of the run that is off by one bit is a difference that names array, element and bits."""
        plant(trace)
        assert main(["replay", str(trace)]) == 1
        out = capsys.readouterr().out
        assert out.splitlines()[-1] == "VERDICT different (3)"
        assert "DIFFERENT advantage.estimate/grpo/rollout-3-service-0: bits against live: advantages[4] (1 ulps)" in out
        assert "bits against frozen: advantages[4]" in out
        assert "rounding against oracle: advantages[4]" in out

    def test_planted_code(
        self, trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A live stage that computes something else is a difference from the run, and not from the frozen copies."""
        calls = subject_named(LIVE).calls
        right = calls.post_process_rewards

        def wrong(args, samples):
            raw, rewards = right(args, samples)
            return raw, [-reward for reward in rewards]

        monkeypatch.setattr(calls, "post_process_rewards", wrong)
        assert main(["replay", str(trace)]) == 1
        out = capsys.readouterr().out
        assert "DIFFERENT reward.normalize/grpo/rollout-3-rollout-0: bits against live: rewards" in out
        assert "bits against frozen: rewards" not in out

    def test_bundle(self, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The cases are kept as a bundle, out of which one is explained."""
        assert main(["replay", str(trace), "--bundle", str(tmp_path / "bundle"), "--quiet"]) == 0
        assert capsys.readouterr().out == "VERDICT equivalent\n"
        name = "reward.normalize/grpo/rollout-3-rollout-0"
        assert main(["explain", name, "--input", str(tmp_path / "bundle")]) == 0
        assert name in capsys.readouterr().out

    def test_hint(self, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """What differs is explained out of the bundle, where one is kept: it stands in no corpus."""
        plant(trace)
        assert main(["replay", str(trace)]) == 1
        assert "relax-verify explain" not in capsys.readouterr().out
        assert main(["replay", str(trace), "--bundle", str(tmp_path / "kept")]) == 1
        hint = f"relax-verify explain 'advantage.estimate/grpo/rollout-3-service-0' --input {tmp_path / 'kept'}"
        assert hint in capsys.readouterr().out

    def test_other_machine(self, trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Where bits differ and the run was made on another kind of machine, that is said."""
        index = json.loads((trace / INDEX).read_bytes())
        index["made_on"]["cpu"] = "SOMETHING"
        (trace / INDEX).write_text(json.dumps(index))
        assert main(["replay", str(trace)]) == 0
        assert "SOMETHING" not in capsys.readouterr().out
        plant(trace)
        assert main(["replay", str(trace)]) == 1
        assert "another machine, whose bits may be others: cpu SOMETHING, here" in capsys.readouterr().out


def damage_index(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Changes the index."""

    def damage(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_bytes())
        change(index)
        (folder / INDEX).write_text(json.dumps(index))

    return damage


def damage_call(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Changes what is written of a call, and the index with it."""

    def damage(folder: Path) -> None:
        path = folder / f"{ADVANTAGES}.json"
        document = json.loads(path.read_bytes())
        change(document)
        path.write_text(json.dumps(document))
        reseal(folder)

    return damage


def flip(folder: Path) -> None:
    """One bit of a tensor."""
    path = folder / f"{ADVANTAGES}.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "not sealed": (lambda folder: (folder / INDEX).unlink(), "trace.json: no such file: the run has not sealed it"),
    "no folder": (shutil.rmtree, "no such file"),
    "index cut": (lambda folder: (folder / INDEX).write_bytes((folder / INDEX).read_bytes()[:-9]), "trace.json"),
    "version": (damage_index(lambda index: index.update(version=2)), "version 2, and this program reads 1"),
    "no rollout": (damage_index(lambda index: index.pop("rollout")), "'rollout' is missing"),
    "odd rollout": (damage_index(lambda index: index.update(rollout="3")), "not of their kind"),
    "no files": (damage_index(lambda index: index.update(files={})), "not pairs of calls and their tensors"),
    "one of a pair": (damage_index(lambda index: index["files"].popitem()), "not pairs of calls"),
    "path": (damage_index(lambda index: index["files"].update({"../x.json": {}, "../x.safetensors": {}})), "not pairs"),
    "no hash": (damage_index(lambda index: index["files"][f"{ADVANTAGES}.json"].pop("sha256")), "'sha256' is missing"),
    "missing": (lambda folder: (folder / f"{ADVANTAGES}.safetensors").unlink(), "no such file: the index lists it"),
    "flipped": (flip, f"{ADVANTAGES}.safetensors: it has changed since it was written"),
    "cut": (lambda folder: (folder / f"{ADVANTAGES}.json").write_bytes(b"{}"), "were written: it was cut or changed"),
    "no tensors": (
        lambda folder: ((folder / f"{ADVANTAGES}.safetensors").write_bytes(b"x" * 9), reseal(folder)),
        f"{ADVANTAGES}.safetensors: no tensors",
    ),
    "stage": (damage_call(lambda call: call.update(stage="loss.reduce")), "a call of 'loss.reduce'"),
    "rank": (damage_call(lambda call: call.update(rank=1)), "1 is no rank of 1"),
    "options": (damage_call(lambda call: call.update(options=[])), "its options are no object"),
    "inputs": (damage_call(lambda call: call.update(inputs=[])), "inputs: no mapping"),
    "unknown value": (damage_call(lambda call: call.update(inputs={"$pickle": "x"})), "is no value of a trace"),
    "unknown tensor": (damage_call(lambda call: call.update(inputs={"$tensor": "99"})), "is no value of a trace"),
    "no result": (damage_call(lambda call: call.update(results={"$mapping": []})), "no advantages among its results"),
    "text result": (
        damage_call(lambda call: call.update(results={"$mapping": [["advantages", "x"], ["returns", []]]})),
        "result 'advantages' is a str",
    ),
    "lone rank": (
        damage_call(lambda call: (call.update(ranks=2), call["options"].update(advantage_estimator="gdpo"))),
        "of 2 ranks that shared the batch only 0 kept the call",
    ),
    "algorithm": (
        damage_call(lambda call: (call.update(ranks=2), call["options"].update(advantage_estimator="odd"))),
        "call 0 of advantage.estimate by service: unknown",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage(name: str, trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace that is damaged, incomplete or made to do harm is refused in one line, with exit status 2."""
    damage, words = DAMAGES[name]
    damage(trace)
    assert main(["replay", str(trace)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err
