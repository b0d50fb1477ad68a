"""Values of a contract: fixed ones whose bytes are frozen, and strategies that draw any."""

from typing import Any, cast

from hypothesis import strategies as st

PRIMITIVES: dict[str, tuple[Any, Any]] = {
    "null": (None, None),
    "boolean": (False, True),
    "int": (0, 2**31 - 1),
    "long": (0, 2**63 - 1),
    "float": (0.0, 0.5),
    "double": (0.0, 0.5),
    "bytes": (b"", b"\x00\xc3\x01\xff"),
    "string": ("", "naïve ∑ \U0001f43a"),
}
"""The least and a full value of each."""


def sample(schema: Any, *, full: bool, named: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - any schema's value
    """Return the least value of a schema (empty, null, zero), or one with everything in it."""
    named = {} if named is None else named
    if isinstance(schema, list):
        return sample(schema[-1 if full else 0], full=full, named=named)
    if isinstance(schema, str):
        if schema in named:
            return sample(named[schema], full=full, named=named)
        return PRIMITIVES[schema][full]
    kind = schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    if kind == "record":
        return {field["name"]: sample(field["type"], full=full, named=named) for field in schema["fields"]}
    if kind == "array":
        return [sample(schema["items"], full=full, named=named) for _ in range(2 if full else 0)]
    if kind == "map":
        return {key: sample(schema["values"], full=full, named=named) for key in (("a", "b") if full else ())}
    if kind == "enum":
        return schema["symbols"][-1 if full else 0]
    if kind == "fixed":
        return bytes(range(schema["size"])) if full else bytes(schema["size"])
    return sample(kind, full=full, named=named)


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}


def values(schema: Any, named: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:  # noqa: ANN401 - any schema
    """Return a strategy for all values of a schema."""
    named = {} if named is None else named
    if isinstance(schema, list):
        return st.one_of([values(branch, named) for branch in schema])
    if isinstance(schema, str):
        return values(named[schema], named) if schema in named else SCALARS[schema]
    kind = cast("str", schema["type"])
    if "name" in schema:
        named[schema["name"]] = schema
    if kind == "record":
        return st.fixed_dictionaries({field["name"]: values(field["type"], named) for field in schema["fields"]})
    if kind == "array":
        return st.lists(values(schema["items"], named), max_size=3)
    if kind == "map":
        return st.dictionaries(SCALARS["string"], values(schema["values"], named), max_size=3)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    return values(kind, named)
