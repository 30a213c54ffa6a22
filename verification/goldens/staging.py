"""Recording into the staging folder: what the working tree gives for every case, complete or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from verification.cases.case import Case
from verification.goldens.compare import golden_of
from verification.goldens.digest import corpus_digest, defaults_digest
from verification.goldens.exchange import staging_folder
from verification.goldens.guard import COMMAND, WritePermit
from verification.goldens.platform import capability, one_thread, platform_key
from verification.goldens.provenance import Recording
from verification.goldens.store import GoldenStore, write_atomically
from verification.goldens.text import Golden
from verification.judges.bits import judge_bits
from verification.revisions.checkout import Checkout
from verification.subjects.protocol import Subject

_RECORDED, _UNFINISHED, _RECORDING = "recorded", "unfinished", "recording.json"


class RecordingError(RuntimeError):
    """A case that cannot be recorded, or a staging folder that holds no recording; the message says which and why."""


def record(
    permit: WritePermit,
    cases: Sequence[Case],
    subject: Subject,
    progress: Callable[[int, int], None] | None = None,
    *,
    device: str = "cpu",
) -> GoldenStore:
    """Runs every case twice and stages what it gave; a case whose two runs differ is a RecordingError.

    What was staged before is replaced once the new recording is complete. Cases that the subject does not have are
    left out. ``progress`` is told how many of how many cases are done. ``device``: what the subject works on.
    """
    staging = staging_folder(permit.checkout)
    unfinished = staging / _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    store = GoldenStore(unfinished / "golden")
    with one_thread():
        for done, case in enumerate(cases, start=1):
            golden = _golden(case, subject, device)
            if golden is not None:
                store.write(golden, permit)
            if progress is not None:
                progress(done, len(cases))
        recording = describe(permit, cases, device)
    write_atomically(unfinished / _RECORDING, json.dumps(asdict(recording), indent=2) + "\n", permit)
    drop(permit.checkout)
    os.rename(unfinished, staging / _RECORDED)
    return staged(permit.checkout)


def _golden(case: Case, subject: Subject, device: str) -> Golden | None:
    first, second = subject.run(case), subject.run(case)
    if first is None or second is None:
        return None
    unsteady = [finding for finding in judge_bits(case, second, first, "its first run") if not finding.agrees]
    if unsteady:
        raise RecordingError(f"case {case.id} gave two results in two runs: {unsteady[0].what}: {unsteady[0].detail}")
    return golden_of(case, first, platform_key(device))


def describe(permit: WritePermit, cases: Sequence[Case], device: str = "cpu") -> Recording:
    """The provenance of a recording made now."""
    return Recording(
        baseline=permit.baseline,
        relax_tree=permit.checkout.tree("relax"),
        corpus=corpus_digest(cases),
        config=defaults_digest(),
        platform=platform_key(device),
        torch=torch.__version__,
        capability=capability(device),
        threads=1,
        command=COMMAND.replace("HEAD", permit.baseline) + ("" if device == "cpu" else f" --device {device}"),
    )


def staged(checkout: Checkout) -> GoldenStore:
    """The goldens that wait for a decision; a RecordingError where there are none."""
    root = checkout.staging / _RECORDED / "golden"
    if not root.is_dir():
        raise RecordingError(f"nothing is staged in {checkout.staging}: record first with {COMMAND}")
    return GoldenStore(root)


def staged_recording(checkout: Checkout) -> Recording:
    """The provenance of what is staged."""
    path = staged(checkout).root.parent / _RECORDING
    try:
        return Recording(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RecordingError(f"{path}: no description of a recording ({error}); record anew with {COMMAND}") from None


def drop(checkout: Checkout) -> bool:
    """Throws away what is staged; whether there was anything."""
    folder: Path = checkout.staging / _RECORDED
    existed = folder.is_dir()
    shutil.rmtree(folder, ignore_errors=True)
    return existed
