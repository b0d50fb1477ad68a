"""Typed events, their codec, and the log that keeps them: in memory, in SQLite, on Kafka."""
