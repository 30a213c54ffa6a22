"""Makes .github/workflows/*.yml from ci/matrix.toml; with --check it only says whether they are what it would make."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
MATRIX = ROOT / "ci" / "matrix.toml"
FOLDER = ROOT / ".github" / "workflows"
HEADER = "# Made by ci/workflows.py from ci/matrix.toml. Change those, and make it again: python ci/workflows.py\n"
RUNNER = "ubuntu-24.04"
REPORTS = "reports"  # the folder that the sessions write HTML, JUnit and JSON to
# A commit's run gives way to the next one of the same request; on a branch each commit keeps its verdict.
CONCURRENCY = {
    "group": "${{ github.workflow }}-${{ github.event.pull_request.number || github.sha }}",
    "cancel-in-progress": True,
}


def workflows(matrix: dict[str, Any]) -> dict[str, str]:
    """The text of each workflow file, by its name."""
    made = {}
    for name, workflow in matrix["workflows"].items():
        jobs = {job: entry for job, entry in matrix["jobs"].items() if entry["workflow"] == name}
        content = {
            "name": workflow["title"],
            "on": workflow["on"],
            "permissions": {"contents": "read"},
            "concurrency": CONCURRENCY,
            "jobs": {job: _job(job, entry, matrix) for job, entry in jobs.items()},
        }
        made[f"{name}.yml"] = HEADER + yaml.dump(content, Dumper=_Plain, sort_keys=False, width=120)
    return made


class _Plain(yaml.SafeDumper):
    """Writes shared values out each time, instead of naming the first and referring to it, and lines as lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Plain.add_representer(str, _Plain.text)


def _job(name: str, entry: dict[str, Any], matrix: dict[str, Any]) -> dict[str, Any]:
    """One job: its runners, the environment of its session, and the steps."""
    axes = {axis: entry[axis] for axis in ("python", "capability") if axis in entry}
    python = "${{ matrix.python }}" if "python" in axes else matrix["python"]["default"]
    environment = {
        "PIP_EXTRA_INDEX_URL": entry.get("index", "${{ vars.TORCH_CPU_INDEX }}"),
        "RELAX_VERIFY_REPORTS": REPORTS,
    }
    if "capability" in axes:
        environment["ATEN_CPU_CAPABILITY"] = "${{ matrix.capability }}"
    if "argument" in entry:  # through the environment: what an event brings is never part of a script
        environment["ARGUMENT"] = entry["argument"]
    return {
        "name": " ".join([name, *(f"${{{{ matrix.{axis} }}}}" for axis in axes)]),
        **({"if": entry["if"]} if "if" in entry else {}),
        "runs-on": entry.get("runner", RUNNER),
        "timeout-minutes": entry["minutes"],
        **({"strategy": {"fail-fast": False, "matrix": axes}} if axes else {}),
        "env": environment,
        "steps": _steps(name, entry, axes, python, matrix["actions"]),
    }


def _steps(
    name: str, entry: dict[str, Any], axes: dict[str, Any], python: str, actions: dict[str, str]
) -> list[dict[str, Any]]:
    history = {"fetch-depth": 0} if entry.get("history") else {}
    commit = {"ref": entry["commit"]} if "commit" in entry else {}
    argument = ' -- "$ARGUMENT"' if "argument" in entry else ""
    artifact = "-".join([name, *(f"${{{{ matrix.{axis} }}}}" for axis in axes)])
    return [
        {"uses": actions["checkout"], "with": {"persist-credentials": False, **history, **commit}},
        {
            "uses": actions["python"],
            "with": {
                "python-version": python,
                "cache": "pip",
                "cache-dependency-path": "constraints.txt\npyproject.toml\n",
            },
        },
        {"run": "python -m pip install --constraint constraints.txt nox"},
        {"run": f"python -m nox --session {entry['session']}{argument}"},
        {
            "if": "always()",
            "uses": actions["upload"],
            "with": {"name": artifact, "path": REPORTS, "if-no-files-found": "ignore", "retention-days": 30},
        },
    ]


def main(arguments: list[str]) -> int:
    """Writes the files, or with ``--check`` compares them; 1 where one is not what the data makes."""
    made = workflows(tomllib.loads(MATRIX.read_text(encoding="utf-8")))
    if arguments == ["--check"]:
        there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yml")}
        there = {name: text for name, text in there.items() if name in made or text.startswith(HEADER)}
        differing = sorted(name for name in {*made, *there} if made.get(name) != there.get(name))
        for name in differing:
            print(f"{FOLDER / name} is not what {MATRIX} makes: python ci/workflows.py")
        return int(bool(differing))
    if arguments:
        print(f"{' '.join(arguments)}: there is only --check", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.yml"):
        if path.read_text(encoding="utf-8").startswith(HEADER):
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
