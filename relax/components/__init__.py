"""The roles of a run, one module each."""
