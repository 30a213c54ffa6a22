"""Recording into the staging folder: what the baseline gives for every case, complete or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict

import torch

from verification.cases.case import Case
from verification.goldens.compare import golden_of
from verification.goldens.digest import corpus_digest, defaults_digest
from verification.goldens.exchange import put, staging_folder
from verification.goldens.guard import COMMAND, WritePermit
from verification.goldens.platform import capability, platform_key
from verification.goldens.provenance import MAX_BYTES, ProvenanceError, Recording, recording_from
from verification.goldens.store import GoldenStore, write_atomically
from verification.goldens.text import Golden
from verification.goldens.twice import Runs
from verification.judges.bits import judge_bits
from verification.plain_file import read_plain
from verification.revisions.checkout import Checkout
from verification.revisions.trees import PACKAGE
from verification.subjects.outcome import Outcome
from verification.subjects.side_by_side import Progress

_RECORDED, _UNFINISHED, _DROPPED, _RECORDING = "recorded", "unfinished", "dropped", "recording.json"


class RecordingError(RuntimeError):
    """A case that cannot be recorded, or a staging folder that holds no recording; the message says which and why."""


def record(
    permit: WritePermit,
    cases: Sequence[Case],
    runs: Runs,
    progress: Progress = lambda done, total: None,
    *,
    device: str = "cpu",
) -> GoldenStore:
    """Stages what both ``runs`` of every case gave; a case whose two runs differ is a RecordingError.

    What was staged before is replaced once the new recording is complete. Cases that the baseline does not have are
    left out. ``progress`` is told how many of how many cases are done. ``device``: what the runs work on.
    """
    staging = staging_folder(permit.checkout)
    unfinished = staging / _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    store = GoldenStore(unfinished / "golden")
    store.root.mkdir(parents=True)
    first, second = runs(cases, progress)
    for case in cases:
        golden = _golden(case, first[case.id], second[case.id], device)
        if golden is not None:
            store.write(golden, permit)
    recording = describe(permit, cases, device)
    write_atomically(unfinished / _RECORDING, json.dumps(asdict(recording), indent=2) + "\n", permit)
    shutil.rmtree(staging / _DROPPED, ignore_errors=True)
    put(unfinished, staging / _RECORDED, aside=staging / _DROPPED)
    for leftover in (unfinished, staging / _DROPPED):
        shutil.rmtree(leftover, ignore_errors=True)
    return staged(permit.checkout)


def _golden(case: Case, first: Outcome | None, second: Outcome | None, device: str) -> Golden | None:
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
        relax_tree=permit.checkout.tree(PACKAGE, permit.baseline),
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
        data = read_plain(path, MAX_BYTES)
        return recording_from((data or b"").decode("utf-8"), str(path))
    except (ValueError, ProvenanceError) as error:
        raise RecordingError(f"{path}: no description of a recording ({error}); record anew with {COMMAND}") from None


def require_current(recording: Recording, cases: Sequence[Case]) -> None:
    """A RecordingError where these are not the cases, or the defaults, that were recorded."""
    if (recording.corpus, recording.config) != (corpus_digest(cases), defaults_digest()):
        raise RecordingError(
            f"the cases, or the defaults under them, changed since the staged recording of {recording.baseline[:12]}:"
            f" record anew with {recording.command}"
        )


def drop(checkout: Checkout) -> bool:
    """Throws away what is staged; whether there was anything. At no moment is there a part of a recording."""
    folder, dropped = checkout.staging / _RECORDED, checkout.staging / _DROPPED
    shutil.rmtree(dropped, ignore_errors=True)
    existed = folder.is_dir()
    if existed:
        os.rename(folder, dropped)
        shutil.rmtree(dropped, ignore_errors=True)
    return existed
