"""The one error of bundles."""

from __future__ import annotations


class BundleError(ValueError):
    """A bundle that cannot be written or is refused; the message names the file, the place and the reason."""
