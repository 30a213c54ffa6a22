"""Settings of the whole suite: one thread for tensors, an answer to Ctrl-C, and the two hypothesis profiles.

``HYPOTHESIS_PROFILE`` chooses the profile: ``dev`` tries few examples, ``ci`` many and always the same ones. Without
it the profile is ``ci`` where ``CI`` is set, else ``dev``.
"""

from __future__ import annotations

import os
import signal

import torch
from hypothesis import HealthCheck, settings

settings.register_profile("dev", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's & has ignored, here and in what tests start
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # the reports of tests are no news
