"""Real ranks: worlds of processes that stay warm, faults on purpose, and a watchdog that names what hangs."""
