"""Real servers on loopback, each one process on a folder of its own, for tests and demos."""
