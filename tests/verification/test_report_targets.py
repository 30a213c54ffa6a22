"""Where reports may go: what cannot be written is refused by name, before anything runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from verification.cli import main
from verification.report.outputs import OutputError, check_targets


def options(**targets: str) -> argparse.Namespace:
    return argparse.Namespace(**{"json": None, "html": None, "junit": None, **targets})


def test_two_reports_cannot_share_standard_output(capsys):
    """Two times - is refused before anything runs, by name."""
    assert main(["check", "--html", "-", "--junit", "-"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "relax-verify check: --html and --junit cannot share standard output\n"


@pytest.mark.parametrize("verb", ["check", "ranks", "device"])
@pytest.mark.parametrize("flag", ["--html", "--junit", "--json"])
def test_what_cannot_be_written_is_refused_before_the_work(verb, flag, tmp_path, capsys):
    """A missing folder, a folder in place of the file, a name too long: one line and exit 2, and nothing was run."""
    refused = {
        tmp_path / "no" / "such" / "file": "there is no folder",
        tmp_path: "it is a folder",
        tmp_path / ("long" * 63): "File name too long",
    }
    for target, reason in refused.items():
        assert main([verb, flag, str(target)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"relax-verify {verb}: cannot write {target}: {reason}")
        assert captured.err.count("\n") == 1


def test_a_folder_that_takes_no_file_is_refused_before_the_work(tmp_path, monkeypatch):
    """The file may be writable: its folder must be, since another takes its place. A file that is not, is replaced."""
    target = tmp_path / "report.html"
    target.write_text("older")
    target.chmod(0o444)
    check_targets(options(html=str(target)))
    assert [target] == list(tmp_path.iterdir())

    def read_only(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", read_only)
    with pytest.raises(OutputError, match=rf"cannot write {target}: Permission denied"):
        check_targets(options(html=str(target)))


def test_two_reports_cannot_share_a_file(tmp_path):
    """The same file by two paths is refused by name, one that is not there yet too; a device takes both."""
    (tmp_path / "link").symlink_to(tmp_path / "report")
    with pytest.raises(OutputError, match=rf"--html and --junit cannot share the file {tmp_path}/report: "):
        check_targets(options(html=str(tmp_path / "link"), junit=str(tmp_path / "." / "report")))
    check_targets(options(html="/dev/null", junit="/dev/null"))


def test_targets_are_paths_and_nothing_else():
    """A flag of the same name that is a switch, or none at all, asks for no file."""
    check_targets(argparse.Namespace(json=True))
    check_targets(argparse.Namespace())
