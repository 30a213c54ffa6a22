"""Where reports go: files that are whole or not there, standard output, the step summary, a reader who leaves."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.verification.report_examples import HOLDING, differing
from verification.cases import find
from verification.cli import READER_LEFT, main
from verification.report import outputs
from verification.report.github import LIMIT
from verification.report.outputs import OutputError, write_reports, write_whole
from verification.subjects.live import live_subject

ROOT = Path(__file__).parents[2]
CASE = find("loss.reduce/grpo/mean-holes").id


def options(**targets: str) -> argparse.Namespace:
    return argparse.Namespace(**{"json": None, "html": None, "junit": None, **targets})


def test_a_check_writes_every_report(tmp_path, capsys):
    """--html, --junit and --json give three files beside the text, each of them of this check."""
    files = {name: tmp_path / f"report.{name}" for name in ("html", "junit", "json")}
    arguments = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert main(["check", "--case", CASE, *arguments]) == 0
    assert capsys.readouterr().out.endswith("VERDICT equivalent\n")
    page = files["html"].read_text(encoding="utf-8")
    assert "<title>VERDICT equivalent" in page
    assert "reduce.sample_mean" in page
    assert "<svg" in page
    (case,) = ElementTree.fromstring(files["junit"].read_bytes()).iter("testcase")
    assert (case.get("name"), len(case)) == (CASE, 0)
    assert json.loads(files["json"].read_text())["verdict"] == "VERDICT equivalent"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json", "report.junit"]


@pytest.mark.parametrize("name", ["html", "junit", "json"])
def test_a_report_may_have_standard_output_for_itself(name, capsys):
    """With - as the file nothing but that report stands on standard output."""
    assert main(["check", "--case", CASE, f"--{name}", "-"]) == 0
    out = capsys.readouterr().out
    start = {"html": "<!doctype html>", "junit": "<?xml", "json": "{"}[name]
    assert out.startswith(start)
    assert not out.endswith("VERDICT equivalent\n")


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """A new file takes the place of the old one; a write that fails half-way leaves that, and nothing beside it."""
    target = tmp_path / "report.html"
    target.write_text("older")
    before = target.stat().st_ino
    write_whole(str(target), "old")
    assert before != target.stat().st_ino

    def half(self, text, encoding):
        self.write_bytes(text[: len(text) // 2].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OutputError, match=r"cannot write .*report\.html: No space left on device"):
        write_whole(str(target), "new" * 100)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_and_a_pipe_stay_what_they_are(tmp_path):
    """A link leads to the file that is replaced; a pipe is written to, never replaced by a file."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "file")
    write_whole(str(link), "text")
    assert link.is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "text"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    write_whole(str(pipe), "through")
    assert reader.communicate(timeout=60)[0] == "through"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_nobody_asks_for_is_not_made(monkeypatch):
    """Without a flag and without GitHub the document is not even built; two reports share one."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    write_reports(options(), pytest.fail, pytest.fail)
    built = []
    monkeypatch.setattr(outputs, "write_whole", lambda target, text: built.append((target, text[:5])))
    write_reports(options(html="a", junit="b"), lambda: built.append("document") or HOLDING, pytest.fail)
    assert built == ["document", ("a", "<!doc"), ("b", "<?xml")]


def test_the_step_summary_is_appended_where_github_asks(tmp_path, monkeypatch):
    """It goes behind what is there, never makes the file larger than the limit, and follows every verb with reports."""
    summary = tmp_path / "summary.md"
    summary.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(["check", "--case", CASE, "--quiet"]) == 0
    text = summary.read_text()
    assert text.startswith("earlier\n## ✅ relax-verify check: VERDICT equivalent\n")
    summary.write_text("x" * (LIMIT - 400))
    write_reports(options(), lambda: differing(cases=20), pytest.fail)
    assert LIMIT - 400 < summary.stat().st_size <= LIMIT
    assert "left out here" in summary.read_text()
    full = summary.stat().st_size
    write_reports(options(), lambda: differing(cases=20), pytest.fail)
    assert summary.stat().st_size == full


def test_a_summary_that_cannot_be_written_leaves_the_verdict(tmp_path, monkeypatch, capsys):
    """Nobody asked for it on the command line, so it is a line on standard error and no failure."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    assert main(["check", "--case", CASE, "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "VERDICT equivalent\n"
    assert "no step summary: cannot write" in captured.err


def test_a_summary_that_cannot_be_made_is_no_failure(tmp_path, monkeypatch, capsys):
    """An error in the document that nothing else asked for is told in one line."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))

    def broken():
        raise RuntimeError("out of order")

    write_reports(options(), broken, pytest.fail)
    told = "relax-verify: no step summary: it cannot be made: RuntimeError: out of order\n"
    assert told == capsys.readouterr().err


VERBS = {
    "check": ["check", "--case", CASE],
    "explain": ["explain", CASE],
    "show": ["show", CASE],
    "conform": ["conform", "tests.verification.test_report_outputs:Same", "--case", CASE],
}
SAID = {
    "check": "VERDICT equivalent",
    "explain": "VERDICT equivalent",
    "show": "inputs",
    "conform": "CONFORMANCE agrees",
}


class Same:
    """The working tree by another name."""

    name = "same"
    run = staticmethod(lambda case: live_subject().run(case))


@pytest.mark.parametrize("verb", VERBS)
def test_the_result_is_printed_though_a_report_cannot_be_written(verb, tmp_path, monkeypatch, capsys):
    """The disk fills up while it works: the result stands on standard output all the same, the reason on stderr."""

    def full(self, text, encoding):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert main([*VERBS[verb], "--json", str(tmp_path / "report.json")]) == 2
    captured = capsys.readouterr()
    assert SAID[verb] in captured.out
    assert "report.json: No space left on device" in captured.err


@pytest.mark.parametrize("verb", [["list"], ["check", "--case", CASE]])
def test_a_reader_who_leaves_ends_it_quietly(verb):
    """Into a closed pipe: nothing on standard error and the exit status that a shell gives for SIGPIPE."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "verification", *verb], stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (READER_LEFT, "")
    assert READER_LEFT == 141


def test_files_named_to_verify_lie_where_its_caller_stands(tmp_path):
    """./verify from another folder runs the checkout's command there, so that relative names mean what they say."""
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    (checkout / "ci").mkdir(parents=True)
    elsewhere.mkdir()
    shutil.copy(ROOT / "verify", checkout)
    shutil.copy(ROOT / "ci" / "environment.sh", checkout / "ci")
    for name in ("pyproject.toml", "constraints.txt"):
        (checkout / name).write_text("")
    command = checkout / ".venv" / "bin" / "relax-verify"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    command.chmod(0o755)
    sources = subprocess.run(["cksum"], input="", capture_output=True, text=True, check=True)  # both are empty
    (checkout / ".venv" / "made-from").write_text(f"{checkout}  {sources.stdout}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    done = subprocess.run(
        ["../checkout/verify", "--json", "report.json"], cwd=elsewhere, env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == (f"{elsewhere} check --json report.json\n", "")
