"""A location is legal by construction, and says the same place in every form."""

from __future__ import annotations

import dataclasses
import string
from pathlib import Path, PureWindowsPath
from urllib.parse import unquote, urlsplit

import pytest

from _therock_utils import storage_location
from _therock_utils._errors import IllegalLocationError
from _therock_utils.storage_location import StorageLocation

UNRESERVED = string.ascii_letters + string.digits + "-._~"  # RFC 3986, section 2.3


def test_a_location_says_its_place_in_every_form() -> None:
    location = StorageLocation(bucket="therock-ci-artifacts", relative_path="12345-linux/file.tar.xz")
    assert location.s3_uri == "s3://therock-ci-artifacts/12345-linux/file.tar.xz"
    assert location.https_url == "https://therock-ci-artifacts.s3.amazonaws.com/12345-linux/file.tar.xz"
    assert location.local_path(Path("/tmp/staging")) == Path("/tmp/staging/12345-linux/file.tar.xz")


def test_the_empty_path_is_the_root() -> None:
    root = StorageLocation("local", "")
    assert root.s3_uri == "s3://local/"
    assert root.https_url == "https://local.s3.amazonaws.com/"
    assert root.local_path(Path("/staging")) == Path("/staging")


@pytest.mark.parametrize(
    ("bucket", "path"),
    [
        ("", "a"),
        ("b\n", "a"),
        ("b/c", "a"),
        ("b", "/a"),
        ("b", "a/"),
        ("b", "a//b"),
        ("b", "../a"),
        ("b", "a/./b"),
        ("b", "a\\b"),
        ("b", "a\x00"),
        ("b", "a\ud800"),
        ("b", "a" * 1025),
    ],
)
def test_what_is_no_location_cannot_be_made(bucket: str, path: str) -> None:
    with pytest.raises(IllegalLocationError):
        StorageLocation(bucket, path)
    with pytest.raises(ValueError, match="cannot be used"):
        dataclasses.replace(StorageLocation("b", "a"), bucket=bucket, relative_path=path)


def test_a_location_is_a_value() -> None:
    location = StorageLocation("b", "a")
    assert location == StorageLocation("b", "a")
    assert len({location, StorageLocation("b", "a"), StorageLocation("b", "c")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        location.bucket = "c"  # type: ignore[misc]  # that it cannot be set is the point


@pytest.mark.parametrize("character", [chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/\\"])
def test_urls_encode_exactly_what_is_not_unreserved(character: str) -> None:
    location = StorageLocation("b", f"a{character}b/c")
    shown = character if character in UNRESERVED else f"%{ord(character):02X}"
    assert location.https_url == f"https://b.s3.amazonaws.com/a{shown}b/c"
    assert location.s3_uri == f"s3://b/a{character}b/c"
    assert unquote(urlsplit(location.https_url).path) == f"/a{character}b/c"


@pytest.mark.parametrize(
    ("key", "encoded"),
    [
        ("7.10.0rc1+abc.tar.gz", "7.10.0rc1%2Babc.tar.gz"),
        ("rand_lib_gfx942:xnack+.tar.zst", "rand_lib_gfx942%3Axnack%2B.tar.zst"),
        ("a%2Fb", "a%252Fb"),
        ("é", "%C3%A9"),
        ("e\u0301", "e%CC%81"),
        ("\U0001f680/~", "%F0%9F%9A%80/~"),
    ],
)
def test_urls_encode_utf8_and_encode_once(key: str, encoded: str) -> None:
    assert StorageLocation("b", key).https_url == f"https://b.s3.amazonaws.com/{encoded}"


@pytest.mark.parametrize("staging", ["/", "/staging", ".", "relative/folder", ".."])
def test_a_local_path_is_below_the_staging_folder(staging: str) -> None:
    path = StorageLocation("b", "a/~/C:/d").local_path(Path(staging))
    assert path.relative_to(Path(staging)).as_posix() == "a/~/C:/d"
    assert path.is_absolute() == staging.startswith("/")


@pytest.mark.parametrize("key", ["D:", "D:/a", "D:a", "a/D:/b", "a/D:"])
def test_on_windows_a_segment_is_no_drive(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(storage_location, "Path", PureWindowsPath)
    path = StorageLocation("b", key).local_path(PureWindowsPath("C:/staging"))  # type: ignore[arg-type]  # see above
    assert path.is_relative_to(PureWindowsPath("C:/staging"))
    assert path.parts[2:] == tuple(key.split("/"))


def test_a_child_is_below_its_parent() -> None:
    assert StorageLocation("b", "a").child("c/d") == StorageLocation("b", "a/c/d")
    assert StorageLocation("b", "").child("c") == StorageLocation("b", "c")


@pytest.mark.parametrize("parent", ["", "a"])
@pytest.mark.parametrize("child", ["", "/", "/c", "c/", "..", "../a", "c//d", "c\n", "c" * 1025])
def test_a_child_cannot_be_anywhere_else(parent: str, child: str) -> None:
    with pytest.raises(IllegalLocationError):
        StorageLocation("b", parent).child(child)


def test_a_child_counts_towards_the_length_of_the_key() -> None:
    parent = StorageLocation("b", "a" * 1000)
    assert len(parent.child("c" * 23).relative_path) == 1024
    with pytest.raises(IllegalLocationError, match="1025 bytes"):
        parent.child("c" * 24)


@pytest.mark.parametrize(
    ("key", "name", "parent"), [("a/b/c.log", "c.log", "a/b"), ("c.log", "c.log", ""), ("", "", "")]
)
def test_a_location_knows_its_name_and_the_folder_that_it_lies_in(key: str, name: str, parent: str) -> None:
    location = StorageLocation("bucket", key)
    assert (location.name, location.parent) == (name, StorageLocation("bucket", parent))
