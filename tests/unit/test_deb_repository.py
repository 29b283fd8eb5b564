"""Debian packages are read with care, and the metadata of an APT repository written and read back."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import hypothesis
import pytest
from debian.deb822 import Deb822, Packages, PkgRelation, Release
from hypothesis import strategies

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, IntegrityError, LocalFileError
from _therock_utils.storage_location import StorageLocation
from fakes.deb_packages import (
    DEBIAN_BINARY,
    ar_header,
    ar_of,
    build_deb,
    control_text,
    deb_of,
    deb_of_archive,
    gzipped,
    tar_of,
)
from fakes.trees import write_tree
from therock_outputs import _deb_archive, deb_repository
from therock_outputs._deb_archive import MAX_CONTROL_ARCHIVE_BYTES, MAX_CONTROL_BYTES
from therock_outputs.deb_repository import DebRepository

if TYPE_CHECKING:
    from pathlib import Path

    from therock_outputs.package_repository import Metadata, Package

ROOT = StorageLocation("bucket", "1-linux/packages/deb")
KIND = DebRepository(ROOT)
NOW = datetime.datetime(2026, 12, 1, 15, 0, 5, tzinfo=datetime.UTC)
FORMAT = ("debian-binary", b"2.0\n")
DATA = ("data.tar.gz", gzipped(tar_of({})))


def inspect(path: Path, *, file_name: str = "", cancel: CancelToken | None = None) -> Package:
    return KIND.inspect(path, file_name=file_name or path.name, cancel=cancel or CancelToken())


def inspect_bytes(folder: Path, data: bytes, *, file_name: str = "a.deb") -> Package:
    path = folder / "a.deb"
    path.write_bytes(data)
    return inspect(path, file_name=file_name)


def inspect_control(folder: Path, control: bytes | str, *, file_name: str = "a.deb") -> Package:
    return inspect_bytes(folder, deb_of(control), file_name=file_name)


def made(folder: Path, name: str, version: str = "1.0", architecture: str = "amd64") -> Package:
    text = control_text(name, version, architecture)
    return inspect_control(folder, text, file_name=f"{name}_{architecture}.deb")


def compose(
    folder: Path, packages: list[Package], *, previous: bytes | None = None, now: datetime.datetime = NOW
) -> Metadata:
    folder.mkdir(parents=True)
    return KIND.compose(packages, folder, previous=previous, now=now, label="nightly")


def stored_files(metadata: Metadata) -> dict[str, bytes]:
    """What would be stored, by key below the suite."""
    start = len(f"{ROOT.relative_path}/dists/stable/")
    files = (*metadata.files, *metadata.plain)
    return {file.location.relative_path[start:]: file.path.read_bytes() for file in files}


def read_back(folder: Path, metadata: Metadata) -> tuple[Package, ...]:
    paths = {file.location: file.path for file in metadata.files}
    return KIND.read({at.location: paths[at.location] for at in KIND.referenced(metadata.commit)}, cancel=CancelToken())


@pytest.mark.needs("dpkg-deb")
@pytest.mark.parametrize("compression", ["gzip", "xz", "zstd", "none"])
def test_packages_of_dpkg_deb_are_read_however_they_are_compressed(tmp_path: Path, compression: str) -> None:
    path = build_deb(tmp_path, "rocm-core", "1:7.1.0~rc1+g12-1", compression=compression)
    package = inspect(path)
    data = path.read_bytes()
    assert package.identity == ("rocm-core", "1:7.1.0~rc1+g12-1", "amd64")
    assert (package.file_name, package.size_bytes) == (path.name, len(data))
    assert package.sha256 == hashlib.sha256(data).hexdigest()
    record = package.record
    assert isinstance(record, deb_repository.DebRecord)
    assert (record.md5, record.sha1) == (hashlib.md5(data).hexdigest(), hashlib.sha1(data).hexdigest())  # noqa: S324 - as APT has them
    assert record.control.endswith("Description: made for a test\n of several lines\n .\n to the end\n")


@pytest.mark.needs("dpkg-deb")
@pytest.mark.parametrize("size_bytes", range(0, 600, 61))
def test_a_package_that_is_cut_is_refused(tmp_path: Path, size_bytes: int) -> None:
    data = build_deb(tmp_path, "rocm-core", "1.0", compression="xz").read_bytes()
    assert len(data) > 600
    with pytest.raises(IntegrityError, match="is no sound Debian package"):
        inspect_bytes(tmp_path, data[:size_bytes])


def control_tar(*members: tarfile.TarInfo, data: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            member.size = len(data) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def link(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return member


HOSTILE = {
    "empty": b"",
    "another format": b"PK\x03\x04" + bytes(100),
    "only the header": b"!<arch>\n",
    "a size that leads back": b"!<arch>\n" + ar_header("debian-binary", -60) + b"2.0\n",
    "a size that is none": b"!<arch>\n" + ar_header("debian-binary", "many") + b"2.0\n",
    "a size beyond the end": b"!<arch>\n" + ar_header("debian-binary", 9_999_999) + b"2.0\n",
    "a first member of another name": ar_of([("control.tar", tar_of({"control": b""})), DATA]),
    "another format's number": ar_of([("debian-binary", b"3.0\n"), ("control.tar", tar_of({"control": b""})), DATA]),
    "no control archive": ar_of([FORMAT, DATA]),
    "no data archive": ar_of([FORMAT, ("control.tar", tar_of({"control": control_text("a1", "1").encode()}))]),
    "too many members": ar_of([FORMAT, *[(f"_{number}", b"") for number in range(99)], DATA]),
    "a compression that nobody knows": ar_of([FORMAT, ("control.tar.br", b"x"), DATA]),
    "damaged gzip": ar_of([FORMAT, ("control.tar.gz", b"\x1f\x8b\x08" + bytes(50)), DATA]),
    "cut gzip": ar_of([FORMAT, ("control.tar.gz", gzipped(tar_of({"control": b"x" * 99}))[:40]), DATA]),
    "damaged xz": ar_of([FORMAT, ("control.tar.xz", b"\xfd7zXZ\0" + bytes(50)), DATA]),
    "damaged zstd": ar_of([FORMAT, ("control.tar.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 50), DATA]),
    "a zstd window of a gigabyte": ar_of([FORMAT, ("control.tar.zst", b"\x28\xb5\x2f\xfd\x00\xa0" + bytes(50)), DATA]),
    "a bomb": ar_of([FORMAT, ("control.tar.gz", gzipped(bytes(MAX_CONTROL_ARCHIVE_BYTES + 1))), DATA]),
    "a huge control archive": ar_of([FORMAT, ("control.tar", bytes(MAX_CONTROL_ARCHIVE_BYTES + 1)), DATA]),
    "a huge control file": deb_of(b"#" * (MAX_CONTROL_BYTES + 1)),
    "no control file": deb_of_archive(tar_of({"./md5sums": b""})),
    "a control file that is a link": deb_of_archive(control_tar(link("./control"))),
    "a member that leads out": deb_of_archive(tar_of({"../../etc/cron.d/x": b"x", "./control": b""})),
    "no tar archive": deb_of_archive(b"x" * 2000),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_or_broken_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        inspect_bytes(tmp_path, data)
    assert "a.deb" in caught.value.what
    assert caught.value.why


@pytest.mark.parametrize(
    ("control", "why"),
    [
        (b"Package: a1\nVersion: 1\xff\nArchitecture: all\n", "not UTF-8"),
        (control_text("a1", "1").replace("Maintainer", "Maint\x1bainer"), "control characters"),
        (control_text("a1", "1").replace("\n", "\r\n"), "control characters"),
        ("", "it has no Package"),
        ("Package: a1\n", "it has no Version"),
        ("Package: a1\nVersion: 1\n", "it has no Architecture"),
        (control_text("A1", "1"), "its Package is 'A1'"),
        (control_text("../a1", "1"), "its Package is '../a1'"),
        (control_text("a1", "1 0"), "its Version is '1 0'"),
        (control_text("a1", "x:1"), "its Version is 'x:1'"),
        (control_text("a1", "1", "amd64/../.."), "its Architecture is 'amd64/../..'"),
        (control_text("a1", "1", "amd64 arm64"), "its Architecture is 'amd64 arm64'"),
        (control_text("a1\n b", "1"), "its Package is"),
        (control_text("a1", "1", extra="\u00a0Filename: x\n"), "has the line"),
        (control_text("a1", "1", extra="Gr\u00fc\u00dfe: x\n"), "has the line"),
        (control_text("a1", "1", extra="X: a\x85Filename: x\n"), "control characters"),
    ],
)
def test_a_control_file_that_policy_does_not_allow_is_refused(tmp_path: Path, control: bytes | str, why: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        inspect_control(tmp_path, control)
    assert why in caught.value.why


@pytest.mark.parametrize("name", ["a b.deb", ".a.deb", "a\n.deb", "a.rpm", "ä.deb", "a.deb ", "-a.deb", "$(id).deb"])
def test_a_file_name_that_no_package_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(IntegrityError, match=r"is no sound Debian package"):
        inspect_control(tmp_path, control_text("a1", "1"), file_name=name)


def test_a_file_that_is_gone_or_a_link_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match="cannot be read"):
        inspect(tmp_path / "a.deb")
    (tmp_path / "b.deb").write_bytes(deb_of(control_text("a1", "1")))
    (tmp_path / "a.deb").symlink_to("b.deb")
    with pytest.raises(LocalFileError, match="cannot be read"):
        inspect(tmp_path / "a.deb")


def test_a_file_that_cannot_be_read_further_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.deb").write_bytes(deb_of(control_text("a1", "1")))

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(_deb_archive, "_control_archive", failing)
    with pytest.raises(LocalFileError, match="cannot be read") as caught:
        inspect(tmp_path / "a.deb")
    assert caught.value.why == "Input/output error"


def test_a_cancel_stops_the_reading(tmp_path: Path) -> None:
    (tmp_path / "a.deb").write_bytes(deb_of(control_text("a1", "1")))
    cancel = CancelToken()
    cancel.cancel(15)
    with pytest.raises(CancelledError):
        inspect(tmp_path / "a.deb", cancel=cancel)


def test_members_that_deb_5_lets_pass_are_passed_over(tmp_path: Path) -> None:
    control = ("control.tar.xz", deb_archive_xz(control_text("a1", "1")))
    package = inspect_bytes(tmp_path, ar_of([DEBIAN_BINARY, ("_gpgorigin", b"odd"), control, DATA]))
    assert package.identity == ("a1", "1", "amd64")


def deb_archive_xz(control: str) -> bytes:
    import lzma

    return lzma.compress(tar_of({"./md5sums": b"x" * 700, "./control": control.encode()}))


def test_a_control_file_has_no_say_in_where_the_file_lies_and_what_its_digests_are(tmp_path: Path) -> None:
    hostile = control_text(
        "a1",
        "1",
        extra="filename: ../../etc/passwd\nSize: 1\nMD5sum: 0\nsha256: 00\nSHA512: 00\nSHA1: 0\ndescription-md5: x\n",
    )
    metadata = compose(tmp_path / "out", [inspect_control(tmp_path, hostile, file_name="a1.deb")])
    (paragraph,) = Packages.iter_paragraphs(metadata.plain[0].path.read_text().splitlines(), use_apt_pkg=False)
    data = (tmp_path / "a.deb").read_bytes()
    assert paragraph["Filename"] == "pool/main/a1.deb"
    assert (paragraph["Size"], paragraph["SHA256"]) == (str(len(data)), hashlib.sha256(data).hexdigest())
    assert not {"SHA512", "Description-md5"} & paragraph.keys()


def test_what_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    packages = [made(tmp_path, "a1"), made(tmp_path, "b1", "2:1~x", "all"), made(tmp_path, "c1", "1", "arm64")]
    assert read_back(tmp_path, compose(tmp_path / "out", packages)) == tuple(packages)


def test_an_architecture_has_an_index_of_its_own_with_the_packages_of_all(tmp_path: Path) -> None:
    packages = [
        made(tmp_path, "a1"),
        made(tmp_path, "b1", architecture="all"),
        made(tmp_path, "c1", architecture="arm64"),
    ]
    files = stored_files(compose(tmp_path / "out", packages))
    for architecture, expected in (("amd64", ["a1", "b1"]), ("arm64", ["b1", "c1"])):
        text = files[f"main/binary-{architecture}/Packages"].decode()
        paragraphs = Packages.iter_paragraphs(text.splitlines(), use_apt_pkg=False)
        assert [paragraph["Package"] for paragraph in paragraphs] == expected


def test_release_has_size_and_digests_of_each_index_which_is_stored_under_each_digest(tmp_path: Path) -> None:
    metadata = compose(tmp_path / "out", [made(tmp_path, "a1")])
    release, files = Release(metadata.commit), stored_files(metadata)
    assert [(field, release[field]) for field in ("Label", "Suite", "Codename", "Components", "Acquire-By-Hash")] == [
        ("Label", "nightly"),
        ("Suite", "stable"),
        ("Codename", "stable"),
        ("Components", "main"),
        ("Acquire-By-Hash", "yes"),
    ]
    assert (release["Date"], release["Architectures"]) == ("Tue, 01 Dec 2026 15:00:05 UTC", "amd64")
    for field, key in (("MD5Sum", "md5sum"), ("SHA1", "sha1"), ("SHA256", "sha256")):
        assert [entry["name"] for entry in release[field]] == [
            "main/binary-amd64/Packages",
            "main/binary-amd64/Packages.gz",
        ]
        for entry in release[field]:
            data = files[entry["name"]]
            assert (int(entry["size"]), entry[key]) == (
                len(data),
                hashlib.new(key.removesuffix("sum"), data).hexdigest(),
            )
            assert files[f"main/binary-amd64/by-hash/{field}/{entry[key]}"] == data
    assert gzip.decompress(files["main/binary-amd64/Packages.gz"]) == files["main/binary-amd64/Packages"]
    assert len(metadata.files) == 6


def test_the_same_packages_give_the_same_bytes_but_for_the_date(tmp_path: Path) -> None:
    packages = [made(tmp_path, "a1"), made(tmp_path, "b1")]
    later = NOW + datetime.timedelta(days=1)
    first, second = compose(tmp_path / "1", packages), compose(tmp_path / "2", packages[::-1], now=later)
    assert stored_files(first) == stored_files(second)
    assert first.commit != second.commit
    assert compose(tmp_path / "3", packages, previous=first.commit, now=later).commit == first.commit
    changed = compose(tmp_path / "4", packages[:1], previous=first.commit, now=later)
    assert b"Wed, 02 Dec 2026" in changed.commit


def test_metadata_of_no_package_are_legal(tmp_path: Path) -> None:
    metadata = compose(tmp_path / "out", [])
    assert read_back(tmp_path, metadata) == ()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match="cannot be written"):
        KIND.compose([], tmp_path / "nowhere", previous=None, now=NOW, label="ci")


GOOD = f"main/binary-amd64/Packages.gz\n {'0' * 64} 5 main/other"


@pytest.mark.parametrize(
    "release",
    [
        b"",
        b"\xff\xfe",
        b"<html>not found</html>",
        b"Origin: ROCm\n",
        b"SHA256: what\n",
        f"SHA256:\n {'0' * 64} 5\n".encode(),
        f"SHA256:\n {'0' * 64} 5 main/binary-amd64/Packages\n".encode(),
        f"SHA256:\n {'0' * 64} 5 ../../binary-amd64/Packages.gz\n".encode(),
        f"SHA256:\n {'0' * 63} 5 main/binary-amd64/Packages.gz\n".encode(),
        f"SHA256:\n {'/' * 64} 5 main/binary-amd64/Packages.gz\n".encode(),
        f"SHA256:\n {'0' * 64} -5 main/binary-amd64/Packages.gz\n".encode(),
        f"SHA256:\n {'0' * 64} 5 main/binary-../Packages.gz\n".encode(),
    ],
)
def test_a_release_file_that_is_none_is_refused(release: bytes) -> None:
    with pytest.raises(IntegrityError, match="Release cannot be used"):
        KIND.referenced(release)


def index_of(*lines: str) -> str:
    fields = {
        "Package": "a1",
        "Version": "1",
        "Architecture": "amd64",
        "Filename": "pool/main/a1.deb",
        "Size": "10",
        "MD5sum": "0" * 32,
        "SHA1": "0" * 40,
        "SHA256": "0" * 64,
    }
    fields |= dict(line.split(": ", 1) for line in lines)
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def read_index(folder: Path, data: bytes) -> tuple[Package, ...]:
    (folder / "index").write_bytes(data)
    return KIND.read({ROOT.child("index"): folder / "index"}, cancel=CancelToken())


@pytest.mark.parametrize(
    "line",
    [
        "Filename: pool/main/../../x.deb",
        "Filename: pool/main/sub/x.deb",
        "Filename: /etc/x.deb",
        "Filename: x.deb",
        "Filename: pool/main/x",
        "Size: -1",
        "Size: ten",
        "SHA256: 00",
        "SHA1: x",
        "MD5sum: x",
        "Package: A",
        "Version: 1 2",
        "Architecture: a/b",
        "Gr\u00f6\u00dfe: 1",
    ],
)
def test_an_index_that_says_what_none_may_say_is_refused(tmp_path: Path, line: str) -> None:
    assert read_index(tmp_path, gzip.compress(index_of().encode()))[0].identity == ("a1", "1", "amd64")
    with pytest.raises(IntegrityError, match="Packages cannot be used"):
        read_index(tmp_path, gzip.compress(index_of(line).encode()))


@pytest.mark.parametrize(
    "data",
    [b"no gzip", gzip.compress(index_of().encode())[:-9], gzip.compress(b"\xff\xfe: x\n\n")],
    ids=["no gzip", "cut", "not UTF-8"],
)
def test_an_index_that_cannot_be_read_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(IntegrityError, match="Packages cannot be used"):
        read_index(tmp_path, data)


def test_an_index_that_decompresses_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deb_repository, "MAX_INDEX_BYTES", 1000)
    with pytest.raises(IntegrityError, match="Packages cannot be used") as caught:
        read_index(tmp_path, gzip.compress(index_of(f"Description: {'x' * 1000}").encode()))
    assert "more than 1000 bytes" in caught.value.why


@hypothesis.given(
    name=strategies.from_regex(r"[a-z0-9][a-z0-9+.-]{1,20}", fullmatch=True),
    version=strategies.from_regex(r"([0-9]:)?[0-9][0-9A-Za-z.+~-]{0,20}", fullmatch=True),
    lines=strategies.lists(strategies.text(strategies.characters(exclude_categories=["Cc", "Cs"]), max_size=40)),
)
@hypothesis.settings(max_examples=60)
def test_whatever_a_description_says_it_is_read_back_and_names_no_other_package(
    tmp_path_factory: pytest.TempPathFactory, name: str, version: str, lines: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("deb")
    description = "".join(f" {line or '.'}\n" for line in lines)
    package = inspect_control(folder, control_text(name, version) + description, file_name="x.deb")
    assert package.identity == (name, version, "amd64")
    assert read_back(folder, compose(folder / "out", [package])) == (package,)
    shutil.rmtree(folder)


@pytest.mark.needs("dpkg-deb", "dpkg-scanpackages")
def test_the_index_says_what_dpkg_scanpackages_says(tmp_path: Path) -> None:
    pool = tmp_path / "pool" / "main"
    build_deb(pool, "rocm-core", "1:7.1.0~rc1+g12-1", extra="Depends: rocm-data (>= 2), libc6\nSection: devel\n")
    build_deb(pool, "rocm-data", "2:1.0+b", architecture="all", file_name="rocm-data_2%3a1.0+b_all.deb")
    scanned = subprocess.run(
        ["dpkg-scanpackages", "--multiversion", "pool"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    ours = compose(tmp_path / "out", [inspect(path) for path in sorted(pool.iterdir())]).plain[0].path.read_text()

    def said(text: str) -> list[dict[str, str]]:
        return [dict(paragraph.items()) for paragraph in Deb822.iter_paragraphs(text, use_apt_pkg=False)]

    assert said(ours) == said(scanned)
    assert len(said(ours)) == 2


RELATIONS = [
    "foo",
    "foo-bar+2.0:any",
    "foo (>= 1:2.0~rc1+git-3)",
    "foo(=  1)",
    "foo ( << 1 ),\n bar (>> 2) | baz:i386 (<= 3),\n\tlast",
    "foo (> 1), bar (< 2)",
]
UNREADABLE = [
    "foo (>= 1.0",
    "foo (>= )",
    "foo, , bar",
    "foo,",
    ", foo",
    "| foo",
    "foo |",
    "foo [amd64]",
    "foo [bogus",
    "foo <!nocheck>",
    "foo bar",
    "foo (=1)",
    "foo (>= 1) (<= 2)",
    "foo (== 1)",
    "${shlibs:Depends}",
    "foo:",
    "-foo",
    f"foo (= {'1' * 300})",
    "f" * 200,
]
FIELDS = ["Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances", "Breaks", "Conflicts", "Replaces", "Provides"]


@pytest.mark.parametrize("relation", RELATIONS)
def test_relations_that_policy_allows_are_kept_as_they_are(tmp_path: Path, relation: str) -> None:
    package = inspect_control(tmp_path, control_text("a1", "1", extra=f"Depends: {relation}\n"))
    assert Deb822(package.record.control)["Depends"] == relation  # type: ignore[attr-defined]  # a DebRecord


def test_an_empty_relation_is_none(tmp_path: Path) -> None:
    package = inspect_control(tmp_path, control_text("a1", "1", extra="Depends:\nProvides: \nBreaks:\n \n"))
    assert not {"Depends", "Provides", "Breaks"} & Deb822(package.record.control).keys()  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize("field", [*FIELDS, "conflicts"])
@pytest.mark.parametrize("relation", UNREADABLE)
def test_a_relation_that_apt_cannot_read_is_refused(tmp_path: Path, field: str, relation: str) -> None:
    with pytest.raises(IntegrityError) as told:
        inspect_control(tmp_path, control_text("a1", "1", extra=f"{field}: {relation}\n"))
    assert f"its {field.capitalize() if field == 'conflicts' else field} has " in told.value.why


@pytest.mark.parametrize(
    "line", ["Provides: foo (>= 1)", "Provides: a | b", "Conflicts: a | b", "Breaks: a | b", "Replaces: a|b"]
)
def test_relations_that_dpkg_does_not_allow_in_this_field_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(IntegrityError):
        inspect_control(tmp_path, control_text("a1", "1", extra=f"{line}\n"))


def test_a_multi_arch_that_apt_warns_of_is_refused(tmp_path: Path) -> None:
    assert inspect_control(tmp_path, control_text("a1", "1", extra="Multi-Arch: foreign\n")).identity[0] == "a1"
    with pytest.raises(IntegrityError) as told:
        inspect_control(tmp_path, control_text("a1", "1", extra="Multi-Arch: bogus\n"))
    assert told.value.why == "its Multi-Arch is 'bogus'"


@pytest.mark.parametrize("field", ["Section", "Source", "Priority"])
def test_a_value_that_apt_cannot_hold_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(IntegrityError, match="is no sound Debian package") as told:
        inspect_control(tmp_path, control_text("a1", "1", extra=f"{field}: {'x' * 70_000}\n"))
    assert told.value.why == f"its {field} has more than 1000 characters"


def test_an_entry_that_apt_cannot_read_is_read_with_its_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(deb_repository, "_fields_fault", lambda _paragraph: "")
        bad = inspect_control(tmp_path, control_text("bad", "1", extra="Breaks: x (\n"), file_name="bad.deb")
    first, second = read_back(tmp_path, compose(tmp_path / "out", [bad, made(tmp_path, "a1")]))
    assert [KIND.entry_fault(package) for package in (first, second)] == ["", "its Breaks has the element 'x ('"]


@hypothesis.given(
    strategies.lists(
        strategies.sampled_from(
            ["a", "b", " ", ",", "|", "(", ")", ">=", "=", "1", "[", "]", "<", ">", ":", "any", "\n "]
        ),
        max_size=8,
    ).map("".join)
)
@hypothesis.settings(max_examples=300, deadline=None)
def test_whatever_relation_is_accepted_is_one_for_another_parser_too(text: str) -> None:
    """python-debian only warns of what it cannot parse, and gives it back as it is."""
    if deb_repository._relation_fault("Depends", text) or not text.strip():
        return
    for alternatives in PkgRelation.parse_relations(text):
        for relation in alternatives:
            assert relation["name"].isalnum()
            assert (relation["arch"], relation["restrictions"]) == (None, None)


@pytest.mark.needs("apt-get")
def test_apt_reads_an_index_of_all_relations_that_are_accepted(tmp_path: Path) -> None:
    packages = [
        inspect_control(
            tmp_path,
            control_text(f"p{number}{field.lower()}", "1", extra=f"{field}: {relation}\n"),
            file_name=f"p{number}{field}.deb",
        )
        for number, relation in enumerate(("", *RELATIONS))
        for field in FIELDS
        if not (field == "Provides" and set(relation) & set("<>|"))
        and not (field in {"Breaks", "Conflicts", "Replaces"} and "|" in relation)
    ]
    metadata = compose(tmp_path / "made", packages)
    suite = tmp_path / "repository" / "dists" / "stable"
    write_tree(suite, {**stored_files(metadata), "Release": metadata.commit})
    state = tmp_path / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    source = f"deb [trusted=yes] file://{tmp_path}/repository stable main\n"
    write_tree(state, {"status": "", "rocm.list": source})
    options = {
        "Dir::Etc::sourcelist": f"{state}/rocm.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State": f"{state}",
        "Dir::State::lists": f"{state}/lists",
        "Dir::State::status": f"{state}/status",
        "Dir::Cache": f"{state}/cache",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "1",
        "Acquire::Check-Date": "false",
    }
    given = [argument for name, value in options.items() for argument in ("-o", f"{name}={value}")]
    update = subprocess.run(["apt-get", "-q", *given, "update"], capture_output=True, text=True, check=False)
    assert (update.returncode, update.stderr) == (0, ""), update.stderr
    listed = subprocess.run(["apt-cache", *given, "pkgnames"], capture_output=True, text=True, check=True)
    assert listed.stderr == ""
    assert {package.identity[0] for package in packages} <= set(listed.stdout.split())
