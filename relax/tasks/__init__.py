"""Tasks to train on: problems, what is a good answer, and how text becomes tokens."""
