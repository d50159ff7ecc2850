"""A real single-node Kafka that rowtide starts, watches and stops as its own child."""
