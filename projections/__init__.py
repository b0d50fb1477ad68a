"""Tables computed from the log, and the worker that feeds them."""
