"""Real servers on loopback, each one process on its own folder, for tests and demos."""
