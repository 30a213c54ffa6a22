"""Cases and outcomes as folders of files that another process reads: JSON and safetensors, never pickle.

A bundle is a folder with ``manifest.json`` (version, kind, count, and the size and checksum of the other files), one
JSON document and ``arrays.safetensors``. Every value keeps its type and its bits. A bundle that was damaged, cut short
or made to do harm is refused with a `BundleError` before its contents are read.
"""

from __future__ import annotations

from verification.bundles.cases import read_cases, write_cases
from verification.bundles.error import BundleError
from verification.bundles.outcomes import read_outcomes, write_outcomes

__all__ = ["BundleError", "read_cases", "read_outcomes", "write_cases", "write_outcomes"]
