"""The `gangline` command: parse, call, print."""
