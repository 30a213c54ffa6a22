"""Named numeric mutants: wrong code on purpose, to see whether the harness notices."""

from verification.mutants.catalogue import MUTANTS
from verification.mutants.mutant import Mutant, StaleMutant

__all__ = ["MUTANTS", "Mutant", "StaleMutant"]
