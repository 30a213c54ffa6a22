"""The golden of a case: what was recorded, where it lies, and the recording that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from verification.cases.case import Case
from verification.goldens import provenance
from verification.goldens.compare import UNRECORDED, default_store
from verification.goldens.digest import input_digest
from verification.goldens.platform import platform_of
from verification.subjects.outcome import Outcome

OTHER_INPUTS = "recorded from other inputs than the case has now"


@dataclass(frozen=True)
class Recorded:
    """``outcome`` is None where there is none to show, and ``why`` says the reason. ``recording``: its provenance."""

    platform: str
    why: str = ""
    path: str = ""
    outcome: Outcome | None = None
    recording: Mapping[str, str] = field(default_factory=dict)


def recorded(case: Case) -> Recorded:
    """The golden of ``case`` on this platform. One that cannot be read says so: the judges report it as a problem."""
    platform = platform_of(case)
    store = default_store()
    try:
        golden = store.read(case.id, platform)
        if golden is None:
            why = UNRECORDED if store.has_platform(platform) else "no golden here"
            return Recorded(platform, f"{why} (platform {platform})")
        path = store.path(case.id, platform)
        found = [one for one, names in provenance.read(path.parent).items() if path.stem in names]
        recording = {name: str(value) for name, value in asdict(found[0]).items()} if found else {}
        same = golden.inputs == input_digest(case)
        return Recorded(platform, "" if same else OTHER_INPUTS, str(path), golden.outcome if same else None, recording)
    except (ValueError, TypeError) as error:
        return Recorded(platform, f"cannot be read: {error}")
