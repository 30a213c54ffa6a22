"""One case laid open: its input, what every subject made of it, where they part, and what the judges say of that."""
