"""The style that no linter checks (docs/decisions, conventions): jobs, names and sizes of modules."""


def test_placeholder() -> None:
    pass
