"""The deterministic core that decides, and the loop that runs it."""
