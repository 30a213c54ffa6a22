"""The verb explain: a bundle's case, commands, JSON, the page, and what cannot be explained."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from verification.bundles import write_cases
from verification.cases import corpus
from verification.cli import main
from verification.explaining.explanation import lay_open
from verification.goldens.platform import platform_key
from verification.subjects.live import live_subject

NAME = "loss.reduce/grpo/mean-holes"
EVERY = {case.id: case for case in corpus()}


def test_a_case_of_a_bundle_is_explained(capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch):
    """--input takes a case that the corpus does not have: judged without a golden, and its command names the folder."""
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    folder = tmp_path / "bundle"
    case = replace(EVERY[NAME], id=f"{NAME}-of-a-bundle")
    write_cases(folder, [case])
    assert main(["explain", "--input", str(folder)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(case.id)
    assert "golden  not recorded: a case of a bundle" in told
    assert "live = frozen: the same bits" in told
    (command,) = [line.split() for line in told.splitlines() if line.startswith("  relax-verify ")]
    assert main(command[1:]) == 0
    assert capsys.readouterr().out == told
    (folder / "manifest.json").write_text("{}")
    assert main(["explain", "--input", str(folder)]) == 2
    assert str(folder) in capsys.readouterr().err


def test_the_commands_run_it_again(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """The printed commands are complete: they name the capability that was chosen, and give the same verdict."""
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    first, second = lay_open(EVERY[NAME]).commands
    assert first == f"ATEN_CPU_CAPABILITY=default relax-verify explain {NAME}"
    assert second == f"ATEN_CPU_CAPABILITY=default relax-verify check --case {NAME}"
    for command in (first, second):
        assert main(command.split()[2:]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "VERDICT equivalent"


def test_json_is_complete_and_strict(capsys: pytest.CaptureFixture[str]):
    """The JSON holds every element's value and bits of every subject, with no word that JSON does not have."""
    case = next(case for case in EVERY.values() if case.id == "kl.estimate/grpo/k3-nan")
    assert main(["explain", case.id, "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [side["name"] for side in found["subjects"]] == ["live", "frozen", "golden"]
    live = live_subject().run(case)
    assert live is not None
    told = found["subjects"][0]["outcome"]["arrays"]
    assert list(live.arrays) == list(told)
    for name, tensor in live.arrays.items():
        bits = [int(word, 16) for word in told[name]["bits"]]
        assert (tensor.view(torch.int32).view(-1).to(torch.int64) & 0xFFFFFFFF).tolist() == bits
        assert list(tensor.shape) == told[name]["shape"]
    assert found["golden"]["recording"] is None or found["golden"]["recording"]["platform"] == platform_key()
    assert found["judges"]["live"]["differences"] == []
    assert found["exit_code"] == 0


def test_the_page_is_written(tmp_path):
    """--html and --junit write the explanation beside the text."""
    page, suite = tmp_path / "case.html", tmp_path / "case.xml"
    assert main(["explain", NAME, "--html", str(page), "--junit", str(suite)]) == 0
    assert NAME in page.read_text()
    assert "the same bits" in page.read_text()
    assert NAME in suite.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["loss.reduce/grpo/mean-hole"], f"no case 'loss.reduce/grpo/mean-hole'; closest: {NAME}"),
        ([], "name a case; the corpus holds"),
        ([NAME, "--subject", "nobody"], "no subject 'nobody'"),
        (["policy.loss/grpo/plain@dp2", "--subject", "frozen"], "takes no --subject"),
    ],
)
def test_what_cannot_be_explained_is_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    """An unknown case names the closest, no case says what to name, an unknown subject what there is."""
    assert main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def spread() -> list[str]:
    """Of each stage, algorithm and kind of input (malformed or not) one case, and the largest case of each stage."""
    chosen: dict[tuple, str] = {}
    for case in EVERY.values():
        chosen.setdefault((case.stage, case.algorithm, case.error is None), case.id)
        for tag in case.tags:
            chosen.setdefault((case.stage, tag), case.id)
    return sorted(set(chosen.values()))


def test_a_spread_of_cases_can_be_explained(capsys: pytest.CaptureFixture[str]):
    """A case of each stage, algorithm and tag is explained in text that ends in the verdict, all inputs among it."""
    for name in spread():
        case = EVERY[name]
        assert main(["explain", name]) == 0, name
        told = capsys.readouterr().out
        assert told.startswith(f"{name}\n  stage      {case.stage}\n")
        assert ("live    failed with" in told) is (case.error is not None)
        assert told.splitlines()[-1] == "VERDICT equivalent"
        for given in case.inputs:
            assert given in told.split("\noutcomes\n")[0]
        told.encode()
    assert len(spread()) > 100
