"""The sessions of this project. ``nox`` alone runs the default ones; ``nox -l`` lists them all.

Environments are reused, and installed anew only when what they are made from has changed, so that a second run needs
no network. Arguments after ``--`` go to the command of the session.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "virtualenv"  # with pip
nox.options.reuse_venv = "yes"
nox.options.sessions = ["cpu", "distributed"]
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
ABSENT = ("ray", "transfer_queue", "tensordict", "megatron")
TESTS = ("tests/relax", "tests/verification", "tests/meta")


def install(session: nox.Session, extra: str) -> None:
    """Installs the working tree with ``extra`` under the constraints, unless this environment already has just that."""
    session.env.update({"PYTHONPATH": None, "PYTHONHOME": None, "PYTHONUNBUFFERED": "1"})
    sources = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    made_from = f"{ROOT} {extra} {sys.version_info} {hashlib.sha256(sources).hexdigest()}"
    stamp = Path(session.virtualenv.location) / "made-from"
    if stamp.exists() and stamp.read_text() == made_from:
        return
    session.install("-qq", "-c", "constraints.txt", "-e", f".[{extra}]")
    stamp.write_text(made_from)


@nox.session(tags=["check"])
def cpu(session: nox.Session) -> None:
    """The verdict and every test that needs only torch, in an environment without ray and megatron."""
    install(session, "verify")
    absent = f"import importlib.util, sys; sys.exit([m for m in {ABSENT} if importlib.util.find_spec(m)] or None)"
    session.run("python", "-c", absent)
    try:
        session.run("relax-verify", "check")
    finally:  # a verdict of "different" is no reason to keep the tests' findings back
        session.run("pytest", *TESTS, *session.posargs)


@nox.session(tags=["check"])
def distributed(session: nox.Session) -> None:
    """The corpus on real ranks over gloo, and every test that starts them; arguments go to pytest."""
    install(session, "verify,megatron")
    try:
        session.run("relax-verify", "ranks", "--jobs", "2")
    finally:
        session.run("pytest", "-n", "2", "tests/distributed", *session.posargs)


@nox.session(tags=["device"], default=False)
def gpu(session: nox.Session) -> None:
    """The formulas on a GPU, over streams and NCCL; without one what needs none, then skipped, saying why."""
    install(session, "verify")
    ask = "from verification.devices.device import why_no_gpu; print('reason:', why_no_gpu())"
    reason = str(session.run("python", "-c", ask, silent=True)).rpartition("reason:")[2].strip()
    try:
        session.run("relax-verify", "device", "pretend" if reason else "cuda")
    finally:
        session.run("pytest", "tests/gpu", "-rs", *session.posargs)
    if reason:
        session.skip(reason)


@nox.session(tags=["check"], default=False)
def tests(session: nox.Session) -> None:
    """pytest with your arguments, all tests without any: nox -s tests -- tests/relax -k gdpo."""
    install(session, "verify,megatron")
    session.run("pytest", *session.posargs)


@nox.session(tags=["style"], default=False)
def lint(session: nox.Session) -> None:
    """Style and import rules: ruff and import-linter, in an environment that needs neither torch nor the project."""
    session.install("-qq", "-c", "constraints.txt", "ruff", "import-linter")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session(tags=["style"], default=False)
def types(session: nox.Session) -> None:
    """Types: mypy with your arguments, both packages without any."""
    install(session, "dev")
    session.run("mypy", *session.posargs)


@nox.session(tags=["measure"], default=False)
def bench(session: nox.Session) -> None:
    """The performance table, ratios taken in one run."""
    install(session, "verify")
    session.run("relax-verify", "bench", *session.posargs)


@nox.session(tags=["measure"], default=False)
def mutants(session: nox.Session) -> None:
    """Wrong code on purpose, which must be noticed; with your arguments: nox -s mutants -- --name 'gae-*'."""
    install(session, "verify,megatron")
    session.run("relax-verify", "mutants", *(session.posargs or ("--jobs", "2")))


@nox.session(tags=["record"], default=False)
def golden(session: nox.Session) -> None:
    """The golden command with your arguments; without any, records HEAD into staging and shows what would change."""
    install(session, "verify")
    if session.posargs:
        session.run("relax-verify", "golden", *session.posargs)
        return
    session.run("relax-verify", "golden", "regen", "--baseline", "HEAD")
    session.run("relax-verify", "golden", "diff", success_codes=[0, 1])
