"""The oracle: exact values of every numeric stage by rationals and balls, independent of the code under test."""

from verification.oracle.evaluate import evaluate
from verification.oracle.exact import Exact

__all__ = ["Exact", "evaluate"]
