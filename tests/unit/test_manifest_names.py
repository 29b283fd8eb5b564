"""What is a framework manifest: its name, and that it is a JSON object."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from therock_outputs.manifest_names import MAX_MANIFEST_BYTES, is_manifest_name, manifest_fault


@pytest.mark.parametrize(
    "filename",
    [
        "therock-manifest_torch_py3.12_release-2.9.json",
        "therock-manifest_jax_py3.13_rocm-jaxlib-v0.8.0.json",
        "therock-manifest_torch_py3.14t_nightly.json",
        "therock-manifest_torch_py3.12_users-x_y+z.json",
        "therock-manifest_torch_py3.12_main.json.json",
    ],
)
def test_names_of_torch_and_jax_builds_are_manifests(filename: str) -> None:
    assert is_manifest_name(filename)


@pytest.mark.parametrize(
    "filename",
    [
        "therock_manifest.json",
        "therock-manifest_torch_py3.12_main",
        "therock-manifest_torch_py3.12_.json",
        "therock-manifest_torch_pypy3.12_main.json",
        "therock-manifest_torch_py312_main.json",
        "therock-manifest_tensorflow_py3.12_main.json",
        "therock-manifest_torch_py3.12_a/b.json",
        "therock-manifest_torch_py3.12_a b.json",
        "therock-manifest_torch_py3.12_a\n.json",
        "therock-manifest_torch_py3.12_main.json\n",
        "Therock-manifest_torch_py3.12_main.json",
        "therock-manifest_torch_py3.12_main.json.sha256sum",
    ],
)
def test_other_names_are_not(filename: str) -> None:
    assert not is_manifest_name(filename)


@given(st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=5))
def test_every_json_object_is_one(document: dict[str, object]) -> None:
    assert manifest_fault(json.dumps(document).encode()) == ""


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "it is no JSON: "),
        (b"{", "it is no JSON: "),
        (b"{}x", "it is no JSON: "),
        (b'{"a": NaN}', "it is no JSON: NaN is not in JSON"),
        (b'{"a": "\xff"}', "it is no JSON: "),
        ("{}".encode("utf-16"), "it is no JSON: "),
        (b"[" * 100_000, "it is no JSON: "),
        (b'{"a": ' + b"1" * 100_000 + b"}", "it is no JSON: "),
        (b"[]", "it is JSON, but a list and no object"),
        (b"null", "it is JSON, but a NoneType and no object"),
        (b'"{}"', "it is JSON, but a str and no object"),
        (b"{}" + b" " * MAX_MANIFEST_BYTES, f"it has more than {MAX_MANIFEST_BYTES} bytes"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_json_object_is_told(data: bytes, fault: str) -> None:
    assert manifest_fault(data).startswith(fault)


def test_the_largest_manifest_is_one() -> None:
    assert manifest_fault(b"{}" + b" " * (MAX_MANIFEST_BYTES - 2)) == ""
