"""Tests of this folder that need a GPU ask for it by name, and are skipped with the reason where there is none."""

from __future__ import annotations

import pytest

from verification.devices.device import Device, device_named, why_no_gpu


@pytest.fixture(scope="session")
def gpu() -> Device:
    """The first GPU."""
    if reason := why_no_gpu():
        pytest.skip(reason)
    return device_named("cuda")
