"""Names and metadata of wheels and sdists, and what is refused."""

from __future__ import annotations

import email.parser
import gzip
import struct
import tarfile
import zipfile
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
    from email.message import Message
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
        f"demo-{'1' * 5000}.tar.gz",
        f"demo-1.0-{'1' * 5000}-py3-none-any.whl",
        "",
    ],
)
def test_any_other_name_is_refused(file_name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_package_name(file_name)
    assert "\n" not in caught.value.what + caught.value.why
    assert len(str(caught.value)) < 800
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
    [(">=3.9", ">=3.9"), ("", ""), (">=3.9\n<script>", ""), ("python 3", ""), (" >= 3.9 ", ">=3.9"), ("==3.*", "==3.*")]
    + [(said, "") for said in (">=" + "3" * 5000, ">=3.9" + ",!=3.0" * 50, "===three", ">=3.9.x")],
)
def test_an_illegal_requires_python_counts_as_none(said: str, legal: str) -> None:
    assert legal_requires_python(said) == legal


def test_metadata_that_cannot_be_read_say_nothing() -> None:
    assert metadata_of(b"\xff\x00nonsense") == PackageMetadata(b"\xff\x00nonsense")


def test_an_illegal_requires_python_is_kept_apart_for_people(tmp_path: Path) -> None:
    found = read(make_wheel(tmp_path, "demo", requires_python=">=" + "3" * 5000))
    assert (found.requires_python, found.illegal_requires_python) == ("", ">=" + "3" * 5000)


def test_a_header_that_is_there_twice_counts_as_not_there() -> None:
    data = b"Name: a\nName: b\nRequires-Python: >=3\nRequires-Python: >=4\nProvides-Extra: x\nProvides-Extra: \xff\n"
    assert metadata_of(data) == PackageMetadata(data, "", ("x",))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_what_comes_after_a_blank_line_is_a_description_of_any_length(tmp_path: Path, line_end: bytes) -> None:
    head = line_end.join((b"Metadata-Version: 2.1", b"Name: demo", b"Version: 1.0", b"Provides-Extra: x", b"", b""))
    path = tmp_path / WHEEL
    path.write_bytes(zipped(wheel_files("demo", "1.0", head + b"Provides-Extra: y\nx: y\n" * 150_000)))
    assert read(path).extras == ("x",)


HEAD = b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"
NO_METADATA = [
    pytest.param(b"".join(b"x%x: 1\n" % number for number in range(60_000)), "more than 10000 headers", id="distinct"),
    pytest.param(b"Provides-Extra: x\n" * 10_000, "more than 10000 headers", id="equal"),
    pytest.param(b"X: y\r" * 10_000, "more than 10000 headers", id="carriage returns"),
    pytest.param(b"License: x\n" + b" x\n" * 400_000, "more than 1048576 bytes", id="folded"),
    pytest.param(b"License: " + b"x" * 2**20, "more than 1048576 bytes", id="long"),
]


@pytest.mark.parametrize(("headers", "why"), NO_METADATA)
@pytest.mark.parametrize("end", [b"\n\nDescription", b""])
def test_headers_that_no_package_has_are_refused_before_they_are_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: bytes, why: str, end: bytes
) -> None:
    monkeypatch.setattr("email.parser.BytesHeaderParser.parsebytes", lambda *_arguments: pytest.fail("parsed"))
    wheel, sdist = tmp_path / WHEEL, tmp_path / SDIST
    wheel.write_bytes(zipped(wheel_files("demo", "1.0", HEAD + headers + end)))
    sdist.write_bytes(tarred({"demo-1.0/PKG-INFO": HEAD + headers + end}))
    for path in (wheel, sdist):
        with pytest.raises(IntegrityError, match=why):
            read(path)
    assert metadata_of(HEAD + headers + end) == PackageMetadata()


def test_metadata_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    parse = email.parser.BytesHeaderParser.parsebytes

    def counted(parser: email.parser.BytesHeaderParser, text: bytes) -> Message:
        parsed.append(text)
        return parse(parser, text)

    monkeypatch.setattr("email.parser.BytesHeaderParser.parsebytes", counted)
    read(make_wheel(tmp_path, "demo"))
    assert len(parsed) == 1
    assert b"for tests" not in parsed[0]


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


GOOD = wheel_files("demo", "1.0", metadata("demo", "1.0"))


def header_chain(kind: bytes) -> bytes:
    """A .tar.gz of nothing but headers, each of which is about the one behind it."""
    header = tarfile.TarInfo("x")
    header.type = kind
    return gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) * 3000)


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
        (zipped(wheel_files("demo", "1.0", metadata("demo", "1" * 5000))), "its metadata are of"),
        (zipped(wheel_files("demo", "1.0", metadata("demo", "1.0" + ".0" * 200))), "its metadata are of"),
    ],
    ids=range(14),
)
def test_a_wheel_that_is_none_is_an_integrity_error(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        read(path)
    assert caught.value.what == f"{WHEEL} is not a wheel that pip could install"
    assert why in caught.value.why


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_metadata_are_not_decompressed_by_a_method_that_has_no_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(zipped(GOOD, method))
    monkeypatch.setattr("zipfile.ZipExtFile.read", lambda *_arguments: pytest.fail("decompressed"))
    with pytest.raises(IntegrityError, match="neither stored nor deflated"):
        read(path)


def test_metadata_may_be_stored_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(zipped(GOOD, zipfile.ZIP_STORED))
    assert read(path).data == metadata("demo", "1.0")


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
        (tarred({"demo-1.0/PKG-INFO": metadata("demo", "1" * 5000)}), "its metadata are of"),
        (header_chain(tarfile.XHDTYPE), "headers of headers"),
        (header_chain(tarfile.GNUTYPE_LONGNAME), "headers of headers"),
        (header_chain(tarfile.GNUTYPE_LONGLINK), "headers of headers"),
    ],
    ids=range(11),
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
