"""The performance table: each row times two ways of doing one thing, in turn, in one run, and states their ratio."""
