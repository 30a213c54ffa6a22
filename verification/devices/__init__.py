"""The corpus on a device: a GPU with its streams, or one in software that any machine can run."""
