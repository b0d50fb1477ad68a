"""Tells people what becomes of their jobs, by webhook or command: a consumer of the log with a durable outbox."""
