"""The algorithm registry of an RL post-training system for language models, and the numerics behind it."""
