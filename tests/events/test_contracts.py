"""The contracts: frozen, readable among all their versions, and the same as the types that hold them."""

import json
import shutil
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.events.codec import Codec, Undecodable, type_of
from gangline.events.control import CONTROL_EVENTS
from gangline.events.decisions import DECISIONS, RoundDecided, TermOpened
from gangline.events.log import LogTooNew
from gangline.events.types import Event, Int32, Meta
from gangline.events.upcasts import UPCASTS, Upcast, chain
from gangline.schemas.contracts import Contract, Library, file_name, measure, packaged
from gangline.schemas.errors import Refused
from gangline.schemas.freeze import freeze
from tests.events import golden
from tests.events.compatibility import incompatible

LIBRARY = packaged()
SCHEMAS = Path(__file__).parents[2] / "schemas"
ON_THE_LOG: tuple[type, ...] = (*CONTROL_EVENTS, *DECISIONS, RoundDecided, TermOpened)


def raw(contract: Contract, library: Library = LIBRARY) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(library.text(contract.name, contract.version))
    return parsed


def newest() -> dict[str, Contract]:
    return {contract.name: contract for contract in LIBRARY.contracts}


def each_contract() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("contract", LIBRARY.contracts, ids=golden.name_of)


# --- frozen ---


@each_contract()
def test_a_frozen_contract_has_not_changed(contract: Contract) -> None:
    measured = measure(LIBRARY.text(contract.name, contract.version))
    assert measured == (contract.fingerprint.hex(), contract.sha256), "write a new version, and restore this one"


def test_every_contract_is_frozen_and_no_fingerprint_is_without_its_contract() -> None:
    frozen = {file_name(contract.name, contract.version) for contract in LIBRARY.contracts}
    files = {path.name for path in (SCHEMAS / "avro").iterdir()}
    assert files == frozen, "run python -m gangline.schemas.freeze, then python -m tests.events.golden"


@each_contract()
@pytest.mark.parametrize("kind", golden.KINDS)
def test_a_contract_still_has_the_bytes_that_it_had(contract: Contract, kind: str) -> None:
    assert golden.encoded(LIBRARY, contract, kind).hex() == golden.load()[golden.name_of(contract)][kind]


def test_fingerprints_are_unique() -> None:
    assert len({contract.fingerprint for contract in LIBRARY.contracts}) == len(LIBRARY.contracts)


# --- readable ---


@pytest.mark.parametrize("name", newest())
def test_every_version_can_be_read_as_every_other(name: str) -> None:
    assert incompatible([raw(contract) for contract in LIBRARY.contracts if contract.name == name]) == []


@each_contract()
def test_every_version_has_its_upcasts_to_the_newest(contract: Contract) -> None:
    steps = chain(contract.name, contract.version, newest()[contract.name].version)
    assert len(steps) == newest()[contract.name].version - contract.version


def test_no_upcast_is_for_a_version_that_there_is_not() -> None:
    known = {(contract.name, contract.version) for contract in LIBRARY.contracts}
    assert {(name, version + 1) for name, version in UPCASTS} <= known


V1: dict[str, Any] = {
    "type": "record",
    "name": "ThingDone",
    "namespace": "gangline",
    "fields": [
        {"name": "count", "type": "int"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"], "default": "a"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def changed(**by_name: Any) -> dict[str, Any]:  # noqa: ANN401 - a part of a schema
    """Return V1 with a field's type changed, a field left out (None), or one more."""
    fields = [
        field | by_name.get(field["name"], {}) for field in V1["fields"] if by_name.get(field["name"], {}) is not None
    ]
    known = {field["name"] for field in V1["fields"]}
    return V1 | {"fields": fields + [{"name": name, **field} for name, field in by_name.items() if name not in known]}


GOOD_V2 = {
    "nothing changed": V1,
    "a field with a default": changed(more={"type": "long", "default": 0}),
    "a field that may be null": changed(more={"type": ["null", "string"], "default": None}),
    "a field with a default left out": changed(note=None),
    "an enum that grows, with a default": changed(
        kind={"type": {"type": "enum", "name": "Kind", "symbols": ["a", "b", "c"], "default": "a"}}
    ),
}
BAD_V2 = {
    "a field without a default": changed(more={"type": "long"}),
    "a field without a default left out": changed(count=None),
    "a wider type, which the old cannot read": changed(count={"type": "long"}),
    "another type": changed(count={"type": "string"}),
    "an enum that shrinks": changed(kind={"type": {"type": "enum", "name": "Kind", "symbols": ["b"]}}),
    "a branch more": changed(note={"type": ["null", "string", "long"]}),
    "a branch less": changed(note={"type": "string", "default": ""}),
    "a renamed field": changed(note=None, remark={"type": "string"}),
}


@pytest.mark.parametrize("name", GOOD_V2)
def test_the_check_lets_pass(name: str) -> None:
    assert incompatible([V1, GOOD_V2[name]]) == []


@pytest.mark.parametrize("name", BAD_V2)
def test_the_check_bites_on(name: str) -> None:
    assert incompatible([V1, BAD_V2[name]])


def test_the_check_bites_on_an_enum_that_grows_where_the_older_version_has_no_default() -> None:
    older, newer = ({"type": {"type": "enum", "name": "Kind", "symbols": list(symbols)}} for symbols in ("ab", "abc"))
    assert incompatible([changed(kind=older), changed(kind=newer)])


def test_the_check_compares_all_versions_and_not_only_neighbours() -> None:
    without = changed(note=None)
    other = changed(note={"type": ["null", "long"], "default": None})
    assert incompatible([V1, without]) == incompatible([without, other]) == []
    assert incompatible([V1, without, other])


# --- held by types ---


def described(schema: Any, named: dict[str, Any]) -> Any:  # noqa: ANN401 - any schema
    """Return what a schema says, in terms that a type can say, too."""
    if isinstance(schema, list):
        assert schema[0] == "null", "null comes first, so that it can be the default"
        return ["null", described(schema[1], named)]
    if isinstance(schema, str):
        plain = {"string": str, "int": Int32, "long": int, "boolean": bool, "bytes": bytes}
        return plain[schema] if schema in plain else named[schema]
    kind = schema["type"]
    found: Any
    if kind == "record":
        found = (schema["name"], [(field["name"], described(field["type"], named)) for field in schema["fields"]])
    elif kind == "array":
        return ["array", described(schema["items"], named)]
    elif kind == "map":
        return ["map", described(schema["values"], named)]
    elif kind == "enum":
        found = ["enum", set(schema["symbols"])]
    else:
        assert kind == "fixed"
        found = bytes
    named[schema["name"]] = found
    return found


def described_type(annotation: Any) -> Any:  # noqa: ANN401 - any type
    """Return what a type says, in the same terms."""
    if annotation == Int32:
        return annotation
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        hints = typing.get_type_hints(annotation, include_extras=True)
        return annotation.__name__, [(name, described_type(hints[name])) for name in annotation.__struct_fields__]
    if origin is types.UnionType or origin is typing.Union:
        assert parts[1] is type(None)
        return ["null", described_type(parts[0])]
    if origin is tuple:
        assert parts[1] is ...
        return ["array", described_type(parts[0])]
    if origin is dict:
        assert parts[0] is str
        return ["map", described_type(parts[1])]
    if origin is typing.Literal:
        return ["enum", set(parts)]
    return annotation


@pytest.mark.parametrize("name", newest())
def test_the_fields_of_a_type_are_those_of_its_contract(name: str) -> None:
    assert described_type(type_of[name]) == described(raw(newest()[name]), {})


def test_every_type_has_a_contract_and_every_contract_a_type() -> None:
    assert type_of.keys() == newest().keys()


def test_every_event_begins_with_its_meta() -> None:
    for name, cls in type_of.items():
        assert (cls.__struct_fields__[0] == "meta") == issubclass(cls, Event), name


@pytest.mark.parametrize("cls", ON_THE_LOG, ids=lambda cls: cls.__name__)
def test_numbers_on_control_and_decisions_are_integers(cls: type) -> None:
    text = json.dumps(raw(newest()[cls.__name__]))
    assert '"float"' not in text
    assert '"double"' not in text


# --- new versions, end to end ---


class ThingDone(Event, frozen=True, kw_only=True):
    count: int
    note: str


META = raw(newest()["LogCreated"])["fields"][0]
STEPS: dict[tuple[str, int], Upcast] = {
    ("ThingDone", 1): lambda fields: {**fields, "note": f"counted {fields['count']}"}
}


def thing(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "ThingDone", "namespace": "gangline", "fields": [META, *fields]})


COUNT = {"name": "count", "type": "int"}
NOTE = {"name": "note", "type": "string", "default": ""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of contracts in which ThingDone.v1 is frozen."""
    (tmp_path / "avro").mkdir()
    (tmp_path / "avro/thing_done.v1.avsc").write_text(thing(COUNT))
    assert freeze(tmp_path) == ["thing_done.v1.avsc"]
    return tmp_path


def test_what_version_1_wrote_is_read_as_version_2(folder: Path) -> None:
    class Old(Event, frozen=True, kw_only=True):
        count: int

    Old.__name__ = "ThingDone"
    meta = Meta(event_id=b"e" * 16, actor="test", at_us=1)
    old = Codec(Library(folder), {}, {"ThingDone": Old})
    written = old.encode(Old(meta=meta, count=3))
    assert old.decode(written) == Old(meta=meta, count=3)

    (folder / "avro/thing_done.v2.avsc").write_text(thing(COUNT, NOTE))
    assert freeze(folder) == ["thing_done.v2.avsc"]
    new = Codec(Library(folder), STEPS, {"ThingDone": ThingDone})
    assert new.decode(written) == ThingDone(meta=meta, count=3, note="counted 3")

    newer = new.encode(ThingDone(meta=meta, count=4, note="hello"))
    assert new.decode(newer) == ThingDone(meta=meta, count=4, note="hello")
    with pytest.raises(LogTooNew, match=newer[2:10].hex()):
        old.decode(newer)
    with pytest.raises(Undecodable):
        new.decode(newer[:-1])


def test_freezing_twice_adds_nothing(folder: Path) -> None:
    before = (folder / "fingerprints.json").read_bytes()
    assert freeze(folder) == []
    assert (folder / "fingerprints.json").read_bytes() == before


def test_the_packaged_contracts_are_as_the_freezing_command_leaves_them(tmp_path: Path) -> None:
    shutil.copytree(SCHEMAS / "avro", tmp_path / "avro")
    freeze(tmp_path)
    assert (tmp_path / "fingerprints.json").read_text() == (SCHEMAS / "fingerprints.json").read_text()


@pytest.mark.parametrize("changed_text", [thing(COUNT, NOTE), thing(COUNT) + "\n"], ids=["a field", "its text only"])
def test_a_frozen_contract_cannot_be_changed(folder: Path, changed_text: str) -> None:
    before = (folder / "fingerprints.json").read_bytes()
    (folder / "avro/thing_done.v1.avsc").write_text(changed_text)
    with pytest.raises(Refused, match=r"thing_done.v1.avsc was changed, .* put what is new into thing_done.v2.avsc"):
        freeze(folder)
    assert (folder / "fingerprints.json").read_bytes() == before


def test_a_frozen_contract_cannot_be_removed(folder: Path) -> None:
    (folder / "avro/thing_done.v1.avsc").unlink()
    with pytest.raises(Refused, match="is gone"):
        freeze(folder)


@pytest.mark.parametrize("name", ["thing_done.v3.avsc", "thing.v2.avsc", "thing_done.v0.avsc", "thing_done.avsc"])
def test_a_file_must_be_named_for_its_record_and_the_next_version(folder: Path, name: str) -> None:
    (folder / "avro" / name).write_text(thing(COUNT, NOTE))
    with pytest.raises(Refused):
        freeze(folder)
