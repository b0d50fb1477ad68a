"""The rules of a round, one module per concern; each reads the state and emits decisions into the round."""
