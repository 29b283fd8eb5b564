"""Names and metadata of wheels and sdists, and what is refused."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, InputError, IntegrityError, LocalFileError
from fakes.wheels import make_sdist, make_wheel, metadata, tarred, wheel_files, zipped
from therock_outputs import python_packages
from therock_outputs.python_packages import (
    PackageMetadata,
    PackageName,
    is_package,
    legal_requires_python,
    metadata_of,
    package_name,
    parse_package_name,
    read_package,
)

if TYPE_CHECKING:
    from pathlib import Path

WHEEL = "demo-1.0-py3-none-any.whl"
SDIST = "demo-1.0.tar.gz"


def read(path: Path) -> PackageMetadata:
    return read_package(path, parse_package_name(path.name), cancel=CancelToken())


@pytest.mark.parametrize(
    ("file_name", "kind", "project", "version"),
    [
        ("rocm-7.10.0a20251120.tar.gz", "sdist", "rocm", "7.10.0a20251120"),
        ("rocm_sdk_gfx94X_dcgpu-7.10.0-py3-none-linux_x86_64.whl", "wheel", "rocm-sdk-gfx94x-dcgpu", "7.10.0"),
        ("torch-2.10.0+rocm7.10.0-cp312-cp312-win_amd64.whl", "wheel", "torch", "2.10.0+rocm7.10.0"),
        ("a.b-1!2.0-1-py2.py3-none-any.whl", "wheel", "a-b", "1!2.0"),
        ("zope.interface-07.0.tar.gz", "sdist", "zope-interface", "7.0"),
    ],
)  # fmt: skip
def test_a_name_says_kind_project_and_version(file_name: str, kind: str, project: str, version: str) -> None:
    assert parse_package_name(file_name) == PackageName(file_name, kind, project, version)  # type: ignore[arg-type]  # a literal
    assert package_name(file_name) == parse_package_name(file_name)


@pytest.mark.parametrize(
    "file_name",
    [
        "a-b.whl",
        "demo-1.0-py3-none-any.whl\n",
        "demo-1.0-py3-none-any>.whl",
        "<script>-1-py3-none-any.whl",
        "é-1-py3-none-any.whl",
        "a b-1.0.tar.gz",
        "demo-x.tar.gz",
        "logs.tar.gz",
        "_-1.0.tar.gz",
        ".demo-1.0.tar.gz",
        "_demo-1.0-py3-none-any.whl",
        "demo-1.0.zip",
        "demo-1.0.WHL",
        "",
    ],
)
def test_any_other_name_is_refused(file_name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_package_name(file_name)
    assert "\n" not in caught.value.what
    assert package_name(file_name) is None


def test_only_two_suffixes_are_packages() -> None:
    assert [is_package(name) for name in (WHEEL, SDIST, "demo-1.0.zip", "x.whl.metadata")] == [True, True, False, False]


def test_a_wheel_says_its_metadata(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "demo", requires_python="<4, >=3.9", extras=("Devel", "a_b", "b@d"))
    found = read(path)
    assert found.data == metadata("demo", "1.0", requires_python="<4, >=3.9", extras=("Devel", "a_b", "b@d"))
    assert (found.requires_python, found.extras) == ("<4,>=3.9", ("a-b", "devel"))


def test_an_sdist_says_the_same_but_has_no_metadata_file(tmp_path: Path) -> None:
    found = read(make_sdist(tmp_path, "demo", requires_python=">=3.9", extras=("libraries",)))
    assert found == PackageMetadata(None, ">=3.9", ("libraries",))


@pytest.mark.parametrize(
    ("said", "legal"),
    [(">=3.9", ">=3.9"), ("", ""), (">=3.9\n<script>", ""), ("python 3", ""), (" >= 3.9 ", ">=3.9")],
)
def test_an_illegal_requires_python_counts_as_none(said: str, legal: str) -> None:
    assert legal_requires_python(said) == legal


def test_metadata_that_cannot_be_read_say_nothing() -> None:
    assert metadata_of(b"\xff\x00nonsense") == PackageMetadata(b"\xff\x00nonsense")


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


GOOD = wheel_files("demo", "1.0", metadata("demo", "1.0"))


def with_flipped_bit(data: bytes) -> bytes:
    """The compressed bytes of METADATA are others."""
    changed = bytearray(data)
    changed[data.index(b"demo-1.0.dist-info/METADATA") + 40] ^= 16
    return bytes(changed)


def with_lying_size(data: bytes) -> bytes:
    """The directory says that METADATA lies far behind the end of the file."""
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"demo-1.0.dist-info/METADATA"))
    return data[: at + 42] + struct.pack("<L", 2**31) + data[at + 46 :]


def with_lying_start(data: bytes) -> bytes:
    """The directory says that it lies behind the end of the file, so that members lie before its start."""
    at = data.rindex(b"PK\x05\x06")
    return data[: at + 16] + struct.pack("<L", 10_000) + data[at + 20 :]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (with_lying_start(zipped(GOOD)), ""),
        (b"", "not a zip file"),
        (b"nonsense", "not a zip file"),
        (truncated(zipped(GOOD)), "not a zip file"),
        (with_lying_size(zipped(GOOD)), ""),
        (with_flipped_bit(zipped(GOOD)), ""),
        (zipped({}), "it has 0 files"),
        (zipped(GOOD | {"x-1.dist-info/METADATA": b""}), "it has 2 files"),
        (zipped(wheel_files("demo", "1.0", metadata("other", "1.0"))), "its metadata are of"),
        (zipped(wheel_files("demo", "1.0", metadata("demo", "2.0"))), "its metadata are of"),
        (zipped(wheel_files("demo", "1.0", metadata("demo", "one"))), "its metadata are of"),
        (zipped(wheel_files("demo", "1.0", b"")), "its metadata are of"),
    ],
    ids=range(12),
)
def test_a_wheel_that_is_none_is_an_integrity_error(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        read(path)
    assert caught.value.what == f"{WHEEL} is not a wheel that pip could install"
    assert why in caught.value.why


def test_metadata_are_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_packages, "MAX_METADATA_BYTES", 1000)
    path = tmp_path / WHEEL
    path.write_bytes(zipped(wheel_files("demo", "1.0", metadata("demo", "1.0") + b" " * 1000)))
    with pytest.raises(IntegrityError, match="more than 1000 bytes"):
        read(path)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", ""),
        (b"nonsense", ""),
        (truncated(tarred({"demo-1.0/PKG-INFO": metadata("demo", "1.0"), "demo-1.0/x": bytes(range(256)) * 999})), ""),
        (tarred({"demo-1.0/setup.py": b""}), "no file PKG-INFO"),
        (tarred({"demo-1.0/PKG-INFO": metadata("other", "1.0")}), "its metadata are of"),
        (tarred({"PKG-INFO": metadata("demo", "1.0")}), "no file PKG-INFO"),
        (tarred({"demo-1.0/src/demo.egg-info/PKG-INFO": metadata("demo", "1.0")}), "no file PKG-INFO"),
    ],
    ids=range(7),
)
def test_an_sdist_that_is_none_is_an_integrity_error(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / SDIST
    path.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        read(path)
    assert caught.value.what == f"{SDIST} is not an sdist that pip could install"
    assert why in caught.value.why


@pytest.mark.parametrize("comes_first", [True, False])
def test_an_sdist_is_decompressed_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_first: bool
) -> None:
    monkeypatch.setattr(python_packages, "MAX_SDIST_BYTES", 100_000)
    info = {"demo-1.0/PKG-INFO": metadata("demo", "1.0", requires_python=">=3.9")}
    large = {"demo-1.0/large": bytes(10_000_000)}
    path = tmp_path / SDIST
    path.write_bytes(tarred(info | large if comes_first else large | info))
    assert read(path) == PackageMetadata(None, ">=3.9" if comes_first else "")


@pytest.mark.parametrize("file_name", [WHEEL, SDIST])
def test_a_file_that_cannot_be_read_is_a_local_error(tmp_path: Path, file_name: str) -> None:
    with pytest.raises(LocalFileError, match="cannot be read"):
        read(tmp_path / file_name)


@pytest.mark.parametrize("make", [make_wheel, make_sdist])
def test_a_cancel_ends_the_reading(tmp_path: Path, make: object) -> None:
    cancel = CancelToken()
    cancel.cancel()
    path = make(tmp_path, "demo")  # type: ignore[operator]  # one of two functions
    with pytest.raises(CancelledError):
        read_package(path, parse_package_name(path.name), cancel=cancel)
