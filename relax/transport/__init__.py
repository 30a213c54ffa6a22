"""How rows of samples travel between the processes of a run."""
