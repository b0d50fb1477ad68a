"""Reducers, one module per event family: `(state, event) -> state`."""
