"""conform: another implementation sorted into agrees, rounds otherwise, dialect, wrong and not there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import torch

from verification.cases import corpus
from verification.cli import main
from verification.conform import ABSENT, AGREES, DIALECT, ROUNDS_OTHERWISE, WRONG, conform
from verification.subjects.in_process import Implementation, load_subject
from verification.subjects.live import live_subject

LIVE = live_subject()


def cases(stage: str, algorithm: str, words: str = ""):
    return [
        case
        for case in corpus()
        if (case.stage, case.algorithm) == (stage, algorithm) and "real" not in case.tags and words in case.id
    ]


def findings(subject, chosen) -> dict[str, str]:
    return {one.case: one.finding for one in conform(subject, chosen, LIVE.run).findings}


class Reducer:
    """The public reducer, the sample mean with a factor."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def reduce_loss(self, args, **inputs):
        return LIVE.calls.reduce_loss(args, **inputs) * self.factor


class Scaled(Reducer):
    """The sample mean, one percent too large."""

    def __init__(self) -> None:
        super().__init__(1.01)


def test_the_same_bits_agree():
    """The working tree under another name agrees on every case, valid and malformed."""
    chosen = cases("loss.reduce", "grpo")
    assert set(findings(Implementation("same", Reducer()), chosen).values()) == {AGREES}


def test_what_is_beyond_the_bound_is_wrong():
    """A factor of 1.01 is wrong wherever the loss is not zero, and so is a wrong sign."""
    chosen = [case for case in cases("loss.reduce", "grpo") if case.error is None]
    for factor in (1.01, -1.0):
        found = findings(Implementation("scaled", Reducer(factor)), chosen)
        loss = {case.id: LIVE.run(case).arrays["loss"].item() for case in chosen}
        judged = {name for name, value in loss.items() if value and np.isfinite(value)}
        assert judged
        assert sum(found[name] == WRONG for name in judged) >= 0.9 * len(judged)


class Float64:
    """The group-normalised reward in float64: right, but for the last bits."""

    def post_process_rewards(self, args, samples):
        raw = [sample.reward for sample in samples]
        groups: dict[int, list[int]] = {}
        for position, sample in enumerate(samples):
            groups.setdefault(sample.group_index, []).append(position)
        out = np.zeros(len(samples))
        for members in groups.values():
            values = np.array([raw[i] for i in members], dtype=np.float32).astype(np.float64)
            centred = values - values.mean()
            out[members] = centred / (centred.std(ddof=1) + 1e-6)
        return raw, out.astype(np.float32).tolist()


def test_other_bits_within_the_bound_round_otherwise():
    """The same formula in float64 differs in bits from the float32 baseline and is not wrong."""
    switched = ("exact_statistics", "grpo_std_normalization")
    chosen = [case for case in cases("reward.normalize", "grpo", "tenths-g8") if not set(switched) & set(case.options)]
    found = findings(Implementation("float64", Float64()), chosen)
    assert ROUNDS_OTHERWISE in found.values()
    assert WRONG not in found.values()


def test_a_declared_dialect_is_no_error():
    """Where a subject declares another definition, numbers beyond the bound are its dialect, elsewhere wrong."""
    subject = Implementation("scaled", Reducer(1.01))
    subject.dialects = {"loss.reduce/grpo/*": "a mean one percent larger"}
    chosen = [case for case in cases("loss.reduce", "grpo") if case.error is None]
    result = conform(subject, chosen, LIVE.run)
    assert not result.wrong
    told = [one for one in result.findings if one.finding == DIALECT]
    assert told
    assert all(one.detail.startswith("a mean one percent larger: ") for one in told)


def test_another_form_of_the_same_numbers_is_dialect():
    """Right numbers with a changed input are a dialect, not an error."""

    class Careless:
        def reduce_loss(self, args, *, values, loss_masks, full_loss_masks=None):
            result = LIVE.calls.reduce_loss(
                args, values=values, loss_masks=[mask.clone() for mask in loss_masks], full_loss_masks=full_loss_masks
            )
            with torch.no_grad():
                loss_masks.append(torch.zeros(0))
            return result

    chosen = [case for case in cases("loss.reduce", "grpo") if case.error is None]
    assert DIALECT in findings(Implementation("careless", Careless()), chosen).values()


def test_accepting_malformed_input_is_wrong():
    """A result where an error is due is wrong; an error of another kind is a dialect."""
    chosen = [case for case in cases("reward.normalize", "gdpo") if case.error is not None]

    class Lenient:
        def post_process_rewards(self, args, samples):
            return [0.0] * len(samples), [0.0] * len(samples)

    class Blunt:
        def post_process_rewards(self, args, samples):
            raise RuntimeError("bad reward")

    assert set(findings(Implementation("lenient", Lenient()), chosen).values()) == {WRONG}
    assert set(findings(Implementation("blunt", Blunt()), chosen).values()) == {DIALECT}


def test_what_it_does_not_have_is_not_there():
    """A stage without its call is neither right nor wrong."""
    assert set(findings(Implementation("reducer", Reducer()), cases("kl.estimate", "grpo")).values()) == {ABSENT}


def test_the_command_prints_the_table(capsys):
    """The verb prints a row a stage and algorithm and a summary; 0 when nothing is wrong, 2 when nothing was there."""
    reference = f"{__name__}:Reducer"
    assert main(["conform", reference, "--stage", "loss.reduce", "--algorithm", "grpo"]) == 0
    out = capsys.readouterr().out
    assert "loss.reduce" in out
    assert out.splitlines()[-1].startswith("CONFORMANCE agrees ")
    assert main(["conform", reference, "--stage", "kl.estimate", "--algorithm", "grpo"]) == 2
    capsys.readouterr()
    assert main(["conform", f"{__name__}:Scaled", "--stage", "loss.reduce", "--algorithm", "grpo", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {one["finding"] for one in findings} >= {AGREES, WRONG}
    assert all("beyond" in one["detail"] or "differ" in one["detail"] for one in findings if one["finding"] == WRONG)


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    """The other framework of the README is loaded from its file, and its declared dialect is told from an error."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(# other_framework\.py\n.*?)```", readme, re.DOTALL)
    assert code is not None
    (tmp_path / "other_framework.py").write_text(code.group(1), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = findings(load_subject("other_framework:GroupScores"), cases("reward.normalize", "grpo", "tenths-g8"))
    assert found["reward.normalize/grpo/tenths-g8"] == DIALECT
    assert found["reward.normalize/grpo/tenths-g8-nostd"] == ABSENT


def test_a_failure_on_valid_input_is_wrong_whatever_is_declared():
    """A dialect is another definition; an exception where a number is due is none."""

    class Failing:
        def __init__(self):
            self.dialects = {"*": "another epsilon"}

        def reduce_loss(self, args, **inputs):
            raise ZeroDivisionError("no mask")

    found = findings(Implementation("failing", Failing()), [cases("loss.reduce", "grpo", "mean-holes")[0]])
    assert set(found.values()) == {WRONG}
