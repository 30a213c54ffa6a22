"""The command line: verbs, filters, exit statuses, output for people, for pipes and for programs."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest

from verification.cases import corpus
from verification.cli import main
from verification.examine import subject_named
from verification.judges.comparison import Comparison
from verification.report.summary import Problem, Report
from verification.report.terminal import print_report, progress_bar

CASE = next(case for case in corpus() if case.stage == "loss.reduce" and case.error is None)
GROUP = f"loss.reduce/{CASE.algorithm}/*"


class Terminal(io.StringIO):
    """Standard output as a terminal."""

    def isatty(self) -> bool:
        return True


def relax_verify(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verification", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


def test_check_ends_in_the_verdict(capsys):
    """In a pipe the check prints plain tables and the verdict as the last line, and gives 0."""
    assert main(["check", "--case", GROUP]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "VERDICT equivalent"
    assert "\x1b" not in out
    assert "loss.reduce" in out
    assert "distance to the exact value" in out


def test_quiet_prints_the_verdict_alone(capsys):
    """--quiet leaves one line."""
    assert main(["check", "--quiet", "--case", CASE.id]) == 0
    assert capsys.readouterr().out == "VERDICT equivalent\n"


def test_differences_give_1_and_their_number(capsys):
    """A subject that differs gives exit 1, the differences with their case, and their number in the last line."""
    assert main(["check", "--case", CASE.id, "--subject", f"{__name__}:OffByOneUlp"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("VERDICT different (")
    assert any(line.startswith(f"DIFFERENT {CASE.id}: bits against frozen: loss") for line in lines)
    assert any("relax-verify explain" in line for line in lines)


class OffByOneUlp:
    """The live reducer, one ulp off."""

    name = "off by one ulp"

    def run(self, case):
        import torch

        from verification.subjects.live import live_subject

        outcome = live_subject().run(case)
        outcome.arrays["loss"] = torch.nextafter(outcome.arrays["loss"], torch.tensor(9e9))
        return outcome


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "--case", "loss.reduce/grpo/no-such-thing-at-all"], ["no case matches", "closest", "loss.reduce/"]),
        (["check", "--stage", "loss.reduced"], ["stages are", "loss.reduce", "kl.estimate"]),
        (["check", "--algorithm", "grop"], ["algorithms are", "grpo"]),
        (["show", CASE.id[:-1]], ["no case", CASE.id]),
        (["explain", "nonsense/none/zzzzzz"], ["no case"]),
        (["check", "--case", CASE.id, "--subject", "no_such_module:Any"], ["cannot import"]),
        (["conform", "tests.verification.test_cli:Nobody"], ["no attribute 'Nobody'"]),
        (["check", "--case", CASE.id, "--json", "/no/such/folder/report.json"], ["cannot write"]),
    ],
)
def test_what_cannot_be_done_is_2_with_help(capsys, arguments, words):
    """A filter or name that matches nothing and a subject that is not there give 2 and say what there is."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err


def test_a_broken_environment_is_2(monkeypatch, capsys):
    """A working tree that cannot be imported, or any other exception, gives 2 and its traceback, never 1."""
    monkeypatch.setitem(sys.modules, "relax.algorithms.policy", None)
    subject_named.cache_clear()
    assert main(["check", "--case", CASE.id]) == 2
    captured = capsys.readouterr()
    assert "VERDICT" not in captured.out
    assert "ModuleNotFoundError, no verdict" in captured.err


def test_usage_errors_are_2():
    """An unknown verb, no verb and a senseless number of jobs end with status 2."""
    for arguments in (["frobnicate"], [], ["check", "--jobs", "0"], ["show"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2


def test_json_alone_and_beside(capsys, tmp_path):
    """--json without a file is all that stands on standard output; with a file the text is printed as well."""
    assert main(["check", "--case", CASE.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "VERDICT equivalent"
    target = tmp_path / "report.json"
    assert main(["check", "--case", CASE.id, "--json", str(target)]) == 0
    assert capsys.readouterr().out.endswith("VERDICT equivalent\n")
    loaded = json.loads(target.read_text())
    assert loaded["cases"] == 1
    assert loaded["stages"][0]["stage"] == "loss.reduce"


def test_list_and_show(capsys):
    """list prints one id a line, filtered; show prints the input, as text and as JSON."""
    assert main(["list", "--stage", "loss.*", "--algorithm", CASE.algorithm]) == 0
    ids = capsys.readouterr().out.splitlines()
    assert ids == [case.id for case in corpus() if case.stage == "loss.reduce" and case.algorithm == CASE.algorithm]
    assert main(["show", CASE.id]) == 0
    text = capsys.readouterr().out
    assert text.startswith(CASE.id)
    assert re.search(r"values\[0\] +float32", text)
    assert main(["show", CASE.id, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["inputs"]["values"][0]["values"] == CASE.inputs["values"][0].tolist()


def test_a_filter_that_matches_all_patterns_is_a_union(capsys):
    """Repeated filters of one kind add up; filters of different kinds narrow."""
    assert main(["list", "--stage", "loss.reduce", "--stage", "kl.estimate", "--algorithm", "grpo"]) == 0
    ids = capsys.readouterr().out.splitlines()
    assert {one.split("/")[0] for one in ids} == {"loss.reduce", "kl.estimate"}
    assert {one.split("/")[1] for one in ids} == {"grpo"}


def report(*differences: Comparison, problems: tuple[Problem, ...] = ()) -> Report:
    agreeing = Comparison("s/a/1", "s", "a", "bits", "frozen", "x", True, 0.0)
    return Report("live", (agreeing, *differences), problems, 1)


def test_colours_on_a_terminal_unless_unwanted(monkeypatch):
    """A terminal gets colours; with NO_COLOR it gets what a pipe gets."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    print_report(report(), out)
    assert "\x1b[" in out.getvalue()
    assert "VERDICT equivalent" in out.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    print_report(report(), plain)
    assert "\x1b" not in plain.getvalue()
    assert plain.getvalue().endswith("VERDICT equivalent\n")


def test_a_problem_leaves_no_verdict_of_equivalence():
    """With a problem of the harness and no difference the last line is no verdict."""
    out = io.StringIO()
    print_report(report(problems=(Problem("s/a/1", "rounding", "RuntimeError: out of order"),)), out)
    lines = out.getvalue().splitlines()
    assert lines[-2] == "PROBLEM s/a/1: rounding: RuntimeError: out of order"
    assert lines[-1] == "NO VERDICT: the harness itself failed (1 problems), see above"


def test_problems_stay_visible_beside_differences():
    """With both, the last line is the verdict, and the problems stand above it, even when quiet."""
    differing = Comparison("s/a/1", "s", "a", "bits", "frozen", "x", False, 1.0, "d")
    for quiet in (False, True):
        out = io.StringIO()
        print_report(report(differing, problems=(Problem("s/a/1", "rounding", "out of order"),)), out, quiet=quiet)
        lines = out.getvalue().splitlines()
        assert lines[-2:] == ["PROBLEM s/a/1: rounding: out of order", "VERDICT different (1)"]


class NoCase:
    """A subject without any case."""

    name = "no case"

    def run(self, case):
        return None


class FirstCase(OffByOneUlp):
    """The live reducer, on one case alone."""

    def run(self, case):
        from verification.subjects.live import live_subject

        return live_subject().run(case) if case.id == CASE.id else None


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_a_subject_that_has_nothing_gets_no_verdict(capsys, quiet):
    """Nothing compared is exit 2 and one line that says what and how much was not there, and never VERDICT."""
    assert main(["check", "--case", CASE.id, "--subject", f"{__name__}:NoCase", *quiet]) == 2
    out = capsys.readouterr().out
    told = f"NO VERDICT: nothing was compared: {__name__}:NoCase has 0 of the 1 cases"
    assert out.splitlines()[-1] == told
    assert "VERDICT equivalent" not in out
    assert out.splitlines() == [told] or not quiet


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_what_is_not_there_is_said_beside_the_verdict(capsys, quiet):
    """A verdict on part of the cases says how many were not judged in the line above, even when quiet."""
    total = sum(case.stage == "loss.reduce" and case.algorithm == CASE.algorithm for case in corpus())
    assert main(["check", "--case", GROUP, "--subject", f"{__name__}:FirstCase", *quiet]) == 0
    absent = f"not there in {__name__}:FirstCase, so not judged: {total - 1} of {total} cases"
    assert capsys.readouterr().out.splitlines()[-2:] == [absent, "VERDICT equivalent"]


def test_explaining_what_nothing_compares_is_2(capsys):
    """explain of a subject that does not have the case gives no verdict either."""
    assert main(["explain", CASE.id, "--subject", f"{__name__}:NoCase"]) == 2
    assert capsys.readouterr().out.splitlines()[-1] == f"NO VERDICT: nothing was compared of {__name__}:NoCase"


def test_the_exit_status_is_documented(capsys):
    """check --help says which status stands for what, differences before problems."""
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "0 equivalent; 1 different, whether or not the harness had problems besides; 2 no verdict" in told
    assert "nothing was compared" in told


def test_long_lists_are_cut_with_a_hint():
    """Of many differences the first twenty are shown, with how to get the rest."""
    many = [Comparison(f"s/a/{n}", "s", "a", "bits", "frozen", "x", False, 1.0, "d") for n in range(30)]
    out = io.StringIO()
    print_report(report(*many), out)
    assert out.getvalue().count("DIFFERENT s/a/") == 20
    assert "... and 10 more: --json FILE lists them all" in out.getvalue()
    assert out.getvalue().endswith("VERDICT different (30)\n")


def test_progress_is_shown_on_a_terminal_only(monkeypatch):
    """A bar on a terminal, nothing in a pipe and nothing when quiet."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for out, quiet, shown in ((Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)):
        with progress_bar("checking", quiet=quiet, out=out) as progress:
            progress(1, 2)
            progress(0, 3, "shrinking")
        assert [shown, shown] == [title in out.getvalue() for title in ("checking", "shrinking")]


def test_help_is_light():
    """--help imports no torch, numpy, flint or rich."""
    code = (
        "import sys\nfrom verification.cli import build_parser\nbuild_parser().format_help()\n"
        "print(sorted({'torch', 'numpy', 'flint', 'rich', 'relax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_module_is_the_command():
    """python -m verification is relax-verify, with its exit status and its last line."""
    done = relax_verify("check", "--case", CASE.id, NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "VERDICT equivalent"
    done = relax_verify("check", "--case", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
