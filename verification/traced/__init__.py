"""The trace that a real run wrote of one rollout: its stage calls as cases, replayed offline, to the bit."""
