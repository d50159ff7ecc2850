"""The generated messages are those of ots.proto, and agree with the official SDK's own."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from rowtide.core.protocol.wire import ots_pb2 as wire

PROTO = "rowtide/core/protocol/wire/ots.proto"


def import_root() -> Path:
    """Return the folder that holds ``rowtide/``: .src here, site-packages for the wheel."""
    assert wire.__file__ is not None
    return Path(wire.__file__).parents[4]


@pytest.mark.parametrize("generated", ["ots_pb2.py", "ots_pb2.pyi"])
def test_the_committed_code_is_what_the_compiler_makes_of_the_proto(
    generated: str, tmp_path: Path
) -> None:
    root = import_root()
    compiler = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(root)]
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*compiler, *outputs, PROTO], check=True, cwd=tmp_path)
    fresh = (tmp_path / "rowtide/core/protocol/wire" / generated).read_text()
    assert fresh == (root / "rowtide/core/protocol/wire" / generated).read_text()


def test_a_request_without_its_required_fields_still_parses() -> None:
    requests = [name for name in wire.DESCRIPTOR.message_types_by_name if name.endswith("Request")]
    assert len(requests) > 25
    for name in requests:
        assert getattr(wire, name).FromString(b"").IsInitialized(), name


def fields_of(message: Descriptor) -> dict[int, FieldDescriptorProto]:
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return {field.number: field for field in proto.field}


def test_nothing_reachable_from_a_request_is_required() -> None:
    def list_required(message: Descriptor, seen: set[str]) -> list[str]:
        if message.full_name in seen:
            return []
        seen.add(message.full_name)
        found = [
            f"{message.name}.{field.name}"
            for field in fields_of(message).values()
            if field.label == FieldDescriptorProto.LABEL_REQUIRED
        ]
        for inner in [field.message_type for field in message.fields if field.message_type]:
            found += list_required(inner, seen)
        return found

    messages = wire.DESCRIPTOR.message_types_by_name
    filters = ("Filter", "SingleColumnValueFilter", "CompositeColumnValueFilter")
    roots = [name for name in messages if name.endswith("Request") or name in filters]
    assert [fault for name in roots for fault in list_required(messages[name], set())] == []


def test_an_answer_without_a_required_field_fails_here_and_not_in_a_client() -> None:
    assert not wire.GetRowResponse(row=b"").IsInitialized()
    assert not wire.DescribeTableResponse().IsInitialized()


def test_an_enum_value_unknown_to_us_is_absent() -> None:
    condition = wire.Condition.FromString(b"\x08\x63")  # row_existence = 99
    assert not condition.HasField("row_existence")


@pytest.fixture(scope="module")
def official() -> list[Any]:
    """The official Python SDK's own modules, in the same process and the same pool."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The SDK warns that its compiled part does not fit.
        return [
            importlib.import_module(f"tablestore.protobuf.{name}")
            for name in ("table_store_pb2", "table_store_filter_pb2")
        ]


def shapes(message: Descriptor) -> dict[int, tuple[str, int, bool]]:
    repeated = FieldDescriptorProto.LABEL_REPEATED
    return {
        number: (field.name, field.type, field.label == repeated)
        for number, field in fields_of(message).items()
    }


def test_every_field_the_official_sdk_knows_is_ours_too(official: list[Any]) -> None:
    theirs: dict[str, Descriptor] = {}
    for module in official:
        theirs |= module.DESCRIPTOR.message_types_by_name
    ours = wire.DESCRIPTOR.message_types_by_name
    shared = sorted(ours.keys() & theirs.keys())
    assert len(shared) > 70
    faults = []
    for name in shared:
        known = shapes(ours[name])
        faults += [
            f"{name} {number}: {shape} is here {known.get(number)}"
            for number, shape in shapes(theirs[name]).items()
            if known.get(number) != shape
        ]
    assert faults == []


def test_every_enum_the_official_sdk_knows_has_the_same_values(official: list[Any]) -> None:
    theirs: dict[str, EnumDescriptor] = {}
    for module in official:
        theirs |= module.DESCRIPTOR.enum_types_by_name
    ours = wire.DESCRIPTOR.enum_types_by_name
    shared = sorted(ours.keys() & theirs.keys())
    assert len(shared) > 12
    for name in shared:
        values = [{v.name: v.number for v in enum.values} for enum in (ours[name], theirs[name])]
        assert values[0] == values[1], name
