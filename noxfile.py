"""The sessions of this project. ``nox`` alone runs the default ones; ``nox -l`` lists them all.

Environments are reused, and installed anew only when what they are made from has changed, so that a second run needs
no network. Arguments after ``--`` go to the command of the session. Where ``RELAX_VERIFY_REPORTS`` names a folder, what
the sessions find is written there too, as HTML, JSON and JUnit.
"""

from __future__ import annotations

import hashlib
import os
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
ALL = ("json", "html", "junit")
CAPABILITIES = ("default", "avx2", "avx512")  # of the CPU, each with the instructions of those before it


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


def reports(name: str, *kinds: str) -> list[str]:
    """Options for the reports of a command, of these kinds, where the environment names a folder for them."""
    folder = os.environ.get("RELAX_VERIFY_REPORTS")
    if not folder:
        return []
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    return [f"--{kind}={ROOT / folder / name}.{'xml' if kind.startswith('junit') else kind}" for kind in kinds]


def run_tests(session: nox.Session, *arguments: str) -> None:
    """pytest, with its report under the session's name."""
    session.run("pytest", *arguments, *reports(f"{session.name}-tests", "junit-xml"))


def require_capability(session: nox.Session) -> None:
    """Skips where ATEN_CPU_CAPABILITY asks for instructions that this CPU lacks: torch would use them and be killed."""
    ask = "import torch; print('offers:', torch.backends.cpu.get_cpu_capability().lower())"
    answer = session.run("python", "-c", ask, silent=True, env={"ATEN_CPU_CAPABILITY": None})
    offered, wanted = str(answer).rpartition("offers:")[2].strip(), os.environ.get("ATEN_CPU_CAPABILITY", "")
    rank = {name: place for place, name in enumerate(CAPABILITIES)}  # what is not among them has nothing of x86
    if rank.get(wanted, 0) > rank.get(offered, 0):
        session.skip(f"ATEN_CPU_CAPABILITY is {wanted}, and this CPU offers {offered}")


@nox.session(tags=["check"])
def cpu(session: nox.Session) -> None:
    """The verdict and every test that needs only torch, in an environment without ray and megatron."""
    install(session, "verify")
    require_capability(session)
    absent = f"import importlib.util, sys; sys.exit([m for m in {ABSENT} if importlib.util.find_spec(m)] or None)"
    session.run("python", "-c", absent)
    try:
        session.run("relax-verify", "check", *reports("check", *ALL))
    finally:  # a verdict of "different" is no reason to keep the tests' findings back
        run_tests(session, *TESTS, *session.posargs)


@nox.session(tags=["check"])
def distributed(session: nox.Session) -> None:
    """The corpus on real ranks over gloo, and every test that starts them; arguments go to pytest."""
    install(session, "verify,megatron")
    try:
        session.run("relax-verify", "ranks", "--jobs", "2", *reports("ranks", *ALL))
    finally:
        run_tests(session, "-n", "2", "tests/distributed", *session.posargs)


@nox.session(tags=["device"], default=False)
def gpu(session: nox.Session) -> None:
    """The formulas on a GPU, over streams and NCCL; without one what needs none, then skipped, saying why."""
    install(session, "verify")
    ask = "from verification.devices.device import why_no_gpu; print('reason:', why_no_gpu())"
    reason = str(session.run("python", "-c", ask, silent=True)).rpartition("reason:")[2].strip()
    try:
        session.run("relax-verify", "device", "pretend" if reason else "cuda", *reports("device", *ALL))
    finally:
        run_tests(session, "tests/gpu", "-rs", *session.posargs)
    if reason:
        session.skip(reason)


@nox.session(tags=["check"], default=False)
def runtime(session: nox.Session) -> None:
    """Training end to end, in one process, over ranks and on Ray: roles, transport, checkpoints, kills."""
    install(session, "verify,megatron,runtime,ray,qwen")
    run_tests(session, "tests/runtime", *session.posargs)


@nox.session(tags=["check"], default=False)
def request(session: nox.Session) -> None:
    """Whether a change states its differences: each with its golden, in the same commits. nox -s request -- main."""
    install(session, "verify")
    session.run("relax-verify", "request", *session.posargs, *reports("request", *ALL))


@nox.session(tags=["check"], default=False)
def tests(session: nox.Session) -> None:
    """pytest with your arguments, all tests without any: nox -s tests -- tests/relax -k gdpo."""
    install(session, "verify,megatron")
    run_tests(session, *session.posargs)


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
    install(session, "verify,megatron,runtime")
    session.run("relax-verify", "bench", *session.posargs, *reports("bench", "json"))


@nox.session(tags=["measure"], default=False)
def mutants(session: nox.Session) -> None:
    """Wrong code on purpose, which must be noticed; with your arguments: nox -s mutants -- --name 'gae-*'."""
    install(session, "verify,megatron")
    session.run("relax-verify", "mutants", *(session.posargs or ("--jobs", "2")), *reports("mutants", "json"))


@nox.session(tags=["record"], default=False)
def golden(session: nox.Session) -> None:
    """The golden command with your arguments; without any, records HEAD into staging and shows what would change."""
    install(session, "verify")
    if session.posargs:
        written = reports("golden", *ALL) if session.posargs[0] == "verify" else []
        session.run("relax-verify", "golden", *session.posargs, *written)
        return
    session.run("relax-verify", "golden", "regen", "--baseline", "HEAD")
    session.run("relax-verify", "golden", "diff", success_codes=[0, 1])
