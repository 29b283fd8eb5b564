"""rpm repositories: what is read of packages and metadata, what is refused; the same packages give the same bytes."""

from __future__ import annotations

import bz2
import datetime
import errno
import gzip
import hashlib
import lzma
import os
import random
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, InputError, IntegrityError, LocalFileError, OutputsError
from _therock_utils.storage_location import StorageLocation
from fakes.contexts import STAGED, make_context
from fakes.rpm_packages import (
    BUILD_SECONDS,
    LEAD_BYTES,
    build_rpm,
    full_rpm,
    header_span,
    make_header,
    program,
    with_signature,
)
from therock_outputs import _rpm_file, _rpm_metadata
from therock_outputs.mode_names import Mode
from therock_outputs.modes.upload_packages import run
from therock_outputs.rpm_repository import RpmRepository

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import createrepo_c

    from therock_outputs.package_repository import Metadata, Package
    from therock_outputs.report import Report

pytestmark = [pytest.mark.needs("rpmbuild"), pytest.mark.usefixtures("no_job")]

ROOT = StorageLocation("bucket", "1-linux/packages/rpm")
NOW = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(days=3)
NAMES = ("rocm-core-7.1.0~rc1+git^2-3.x86_64.rpm", "gcc-c++-1.0-1.noarch.rpm")
KINDS = ("primary", "filelists", "other")
STRING, BINARY, INT32 = 6, 7, 4


@dataclass
class Repository:
    """The kind under test, with what its caller does: each step has a new folder for temporary files."""

    folder: Path
    kind: RpmRepository
    cancel: CancelToken
    _steps: int = 0

    def inspect(self, path: Path, file_name: str = "") -> Package:
        return self.kind.inspect(path, file_name=file_name or path.name, cancel=self.cancel)

    def compose(
        self, packages: Sequence[Package], *, previous: bytes | None = None, now: datetime.datetime = NOW
    ) -> Metadata:
        return self.kind.compose(packages, self.scratch(), previous=previous, now=now, label="dev")

    def read(self, *paths: Path) -> tuple[Package, ...]:
        return self.kind.read({ROOT.child(path.name): path for path in paths}, cancel=self.cancel)

    def read_folder(self, folder: Path) -> tuple[Package, ...]:
        """As the caller reads a repository below `folder`: each file must be what repomd.xml says."""
        references = self.kind.referenced((folder / "repodata/repomd.xml").read_bytes())
        files = {}
        for reference in references:
            path = Path(folder, reference.location.relative_path.removeprefix(f"{self.kind.pool.relative_path}/"))
            content = path.read_bytes()
            assert (reference.size_bytes, reference.sha256) == (len(content), hashlib.sha256(content).hexdigest())
            files[reference.location] = Path(shutil.copy(path, self.scratch()))
        return self.kind.read(files, cancel=self.cancel)

    def scratch(self) -> Path:
        self._steps += 1
        folder = self.folder / f"scratch{self._steps}"
        folder.mkdir()
        return folder


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path, RpmRepository(ROOT), CancelToken())


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages NAMES; read only."""
    folder = tmp_path_factory.mktemp("rpms")
    full_rpm(folder)
    build_rpm(folder, "gcc-c++")
    return folder


@pytest.fixture
def packages(repository: Repository, built: Path) -> tuple[Package, ...]:
    return tuple(repository.inspect(built / name) for name in NAMES)


def opened(metadata: Metadata) -> dict[str, str]:
    """The XML texts by kind."""
    return {
        kind: gzip.decompress(file.path.read_bytes()).decode() for kind, file in zip(KINDS, metadata.files, strict=True)
    }


def said(package: Package) -> tuple[str, str, str]:
    """All that metadata say of a package."""
    import createrepo_c

    return cast("tuple[str, str, str]", createrepo_c.xml_dump(cast("createrepo_c.Package", package.record)))


def xml_files(
    folder: Path, metadata: Metadata, change: Callable[[str, str], str] = lambda _kind, text: text
) -> list[Path]:
    """The metadata, decompressed, as `change` makes them of kind and text."""
    paths = []
    for kind, text in opened(metadata).items():
        path = folder / f"{kind}-changed"
        path.write_text(change(kind, text), "utf-8")
        paths.append(path)
    return paths


def test_the_repository_is_in_the_folder_of_its_architecture() -> None:
    kind = RpmRepository(ROOT)
    assert kind.extension == ".rpm"
    assert kind.url == kind.pool == ROOT.child("x86_64")
    assert kind.commit == ROOT.child("x86_64/repodata/repomd.xml")


# Packages


def test_a_package_is_known_by_name_version_with_epoch_and_architecture(packages: tuple[Package, ...]) -> None:
    assert [package.identity for package in packages] == [
        ("rocm-core", "1:7.1.0~rc1+git^2-3", "x86_64"),
        ("gcc-c++", "0:1.0-1", "noarch"),
    ]


def test_an_epoch_that_is_no_int_everywhere_is_refused(repository: Repository, tmp_path: Path) -> None:
    largest = repository.inspect(build_rpm(tmp_path, "largest", epoch="2147483647"))
    assert largest.identity[1].startswith("2147483647:")
    assert repository.kind.entry_fault(largest) == ""
    with pytest.raises(IntegrityError) as caught:
        repository.inspect(build_rpm(tmp_path, "larger", epoch="2147483648"))
    assert "the epoch 2147483648, which is above 2147483647" in caught.value.why


def test_size_and_digest_are_the_files(built: Path, packages: tuple[Package, ...]) -> None:
    contents = [(built / name).read_bytes() for name in NAMES]
    expected = [(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in zip(NAMES, contents, strict=True)]
    assert [(package.file_name, package.size_bytes, package.sha256) for package in packages] == expected


def test_what_is_said_of_a_package_is_what_createrepo_c_says_of_its_file(
    built: Path, packages: tuple[Package, ...]
) -> None:
    import createrepo_c

    path = built / NAMES[0]
    os.utime(path, (BUILD_SECONDS, BUILD_SECONDS))
    theirs = createrepo_c.xml_dump(createrepo_c.package_from_rpm(str(path), location_href="package.rpm"))
    assert said(packages[0]) == theirs


def test_the_time_of_the_file_here_says_nothing(repository: Repository, built: Path, tmp_path: Path) -> None:
    texts = []
    for seconds in (1, 2_000_000_000):
        path = Path(shutil.copy(built / NAMES[0], tmp_path))
        os.utime(path, (seconds, seconds))
        texts.append(said(repository.inspect(path)))
    assert texts[0] == texts[1]
    assert f'<time file="{BUILD_SECONDS}" build="{BUILD_SECONDS}"/>' in texts[0][0]


def test_a_change_of_any_byte_of_header_or_payload_is_found(
    repository: Repository, built: Path, tmp_path: Path
) -> None:
    data = (built / NAMES[0]).read_bytes()
    start, end = header_span(data)
    chooser = random.Random(7)
    positions = {start, end - 1, end, len(data) - 1, *(chooser.randrange(start, len(data)) for _ in range(60))}
    path = tmp_path / "changed.rpm"
    for position in sorted(positions):
        changed = bytearray(data)
        changed[position] ^= 1 << chooser.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(IntegrityError, match=r"'changed\.rpm' is no sound rpm package"):
            repository.inspect(path)


@pytest.mark.parametrize("kept", ["nothing", "lead", "signature", "header", "almost all"])
def test_a_package_that_was_cut_off_is_found(kept: str, repository: Repository, built: Path, tmp_path: Path) -> None:
    data = (built / NAMES[0]).read_bytes()
    start, end = header_span(data)
    sizes = {"nothing": 0, "lead": LEAD_BYTES, "signature": start, "header": end, "almost all": len(data) - 1}
    path = tmp_path / "cut.rpm"
    path.write_bytes(data[: sizes[kept]])
    with pytest.raises(IntegrityError, match="no sound rpm package") as caught:
        repository.inspect(path)
    assert "it has" in caught.value.why


def test_bytes_behind_a_package_are_found(repository: Repository, built: Path, tmp_path: Path) -> None:
    path = tmp_path / "longer.rpm"
    path.write_bytes((built / NAMES[0]).read_bytes() + b"\0")
    with pytest.raises(IntegrityError, match="by its own account"):
        repository.inspect(path)


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ({}, "no digest of its header"),
        ({273: (STRING, b"0" * 64 + b"\0", 1)}, "sha256 digest of its header"),
        ({269: (STRING, b"0" * 40 + b"\0", 1)}, "sha1 digest of its header"),
        ({273: (INT32, bytes(4), 1)}, "wrong type"),
        ({1000: (INT32, bytes(4)[:0], 1)}, "beyond the header's end"),
        ({1000: (INT32, b"\0\0\0\x07", 1)}, "is it complete"),
    ],
)
def test_a_package_whose_own_digests_do_not_fit_is_refused(
    entries: dict[int, tuple[int, bytes, int]], fault: str, repository: Repository, built: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.rpm"
    path.write_bytes(with_signature((built / NAMES[0]).read_bytes(), entries))
    with pytest.raises(IntegrityError) as caught:
        repository.inspect(path)
    assert fault in caught.value.why


def old_package(header: bytes, payload: bytes, lead: bytes, *, md5: bytes | None = None) -> bytes:
    """A package as before rpm 4.14: its payload has a digest in the signature only, an MD5 with the header's bytes."""
    sha1 = hashlib.sha1(header, usedforsecurity=False).hexdigest().encode() + b"\0"
    both = hashlib.md5(header + payload, usedforsecurity=False).digest() if md5 is None else md5
    entries = {269: (STRING, sha1, 1), 1004: (BINARY, both, len(both))}
    return with_signature(lead + make_header({}) + header + payload, entries)


def without_entry(header: bytes, tag: int) -> bytes:
    """`header` in which nobody finds `tag`: a tag that means nothing stands in its place."""
    wanted = tag.to_bytes(4, "big")
    assert header.count(wanted) == 1
    return header.replace(wanted, (0x7FFF_FF00).to_bytes(4, "big"))


def test_an_old_package_is_compared_with_its_md5(repository: Repository, built: Path, tmp_path: Path) -> None:
    data = (built / NAMES[0]).read_bytes()
    start, end = header_span(data)
    header, path = without_entry(data[start:end], 5092), tmp_path / "old.rpm"
    path.write_bytes(old_package(header, data[end:], data[:LEAD_BYTES]))
    assert repository.inspect(path).identity[0] == "rocm-core"
    path.write_bytes(old_package(header, data[end:], data[:LEAD_BYTES], md5=bytes(16)))
    with pytest.raises(IntegrityError, match="md5 digest of its header and payload"):
        repository.inspect(path)
    path.write_bytes(old_package(header, data[end:], data[:LEAD_BYTES], md5=b""))
    with pytest.raises(IntegrityError, match="no digest of its payload"):
        repository.inspect(path)


def test_a_header_that_claims_gigabytes_is_not_read(repository: Repository, built: Path, tmp_path: Path) -> None:
    path = tmp_path / "claims.rpm"
    lead = (built / NAMES[0]).read_bytes()[:LEAD_BYTES]
    path.write_bytes(lead + b"\x8e\xad\xe8\x01\0\0\0\0" + b"\xff" * 8 + bytes(1000))
    with pytest.raises(IntegrityError, match=f"more than {_rpm_file.MAX_HEADER_BYTES}"):
        repository.inspect(path)


@pytest.mark.parametrize("content", [b"!<arch>\ndebian-binary", b"\0" * 5000, b"PK\x03\x04" + bytes(200)])
def test_other_files_are_no_packages(content: bytes, repository: Repository, tmp_path: Path) -> None:
    path = tmp_path / "other.rpm"
    path.write_bytes(content)
    with pytest.raises(IntegrityError):
        repository.inspect(path)


def test_what_metadata_could_not_say_is_refused_before_anything_is_written(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = build_rpm(tmp_path, "control", header="Vendor: a\x01::error::b")
    with pytest.raises(IntegrityError, match="control chars"):
        repository.inspect(path)
    assert capfd.readouterr() == ("", "")


def test_what_the_library_complains_of_is_not_printed(
    repository: Repository, built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A header that is intact by its digests, and means nothing."""
    data = (built / NAMES[0]).read_bytes()
    start, end = header_span(data)
    header = bytearray(data[start:end])
    header[24:28] = b"\xff" * 4  # the offset of the first entry
    path = tmp_path / "made.rpm"
    path.write_bytes(old_package(without_entry(bytes(header), 5092), data[end:], data[:LEAD_BYTES]))
    with pytest.raises(IntegrityError, match="createrepo_c says"):
        repository.inspect(path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("what", ["missing", "folder", "link", "pipe"])
def test_what_is_no_regular_file_is_not_read(what: str, repository: Repository, built: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.rpm"
    if what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(built / NAMES[0])
    elif what == "pipe":
        os.mkfifo(path)
    with pytest.raises((IntegrityError, LocalFileError)):
        repository.inspect(path)


def test_a_cancel_stops_the_reading(repository: Repository, built: Path) -> None:
    repository.cancel.cancel(15)
    with pytest.raises(CancelledError):
        repository.inspect(built / NAMES[0])


@pytest.mark.parametrize("file_name", ["", "..", "a/b.rpm", "a\nb.rpm", "a\\b.rpm"])
def test_a_file_name_that_is_no_name_in_the_pool_is_refused(
    file_name: str, repository: Repository, built: Path
) -> None:
    with pytest.raises(IntegrityError):
        repository.kind.inspect(built / NAMES[0], file_name=file_name, cancel=repository.cancel)


def test_without_createrepo_c_there_is_no_repository_and_the_error_says_what_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "createrepo_c", None)
    with pytest.raises(InputError, match="createrepo-c and the system's GLib"):
        RpmRepository(ROOT)


def test_a_process_without_standard_error_reads_packages_too(
    repository: Repository, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(descriptor: int) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), descriptor)

    monkeypatch.setattr(os, "dup", closed)
    assert repository.inspect(built / NAMES[1]).identity[0] == "gcc-c++"


# Metadata that are written


def test_the_same_packages_give_the_same_bytes_in_any_order(
    repository: Repository, packages: tuple[Package, ...]
) -> None:
    first, second = repository.compose(packages), repository.compose(packages[::-1])
    assert first.commit == second.commit
    assert [file.location for file in first.files] == [file.location for file in second.files]
    assert [file.path.read_bytes() for file in first.files] == [file.path.read_bytes() for file in second.files]


def test_packages_that_come_back_from_metadata_give_the_same_bytes(
    repository: Repository, packages: tuple[Package, ...]
) -> None:
    first = repository.compose(packages)
    again = repository.compose(repository.read(*(file.path for file in first.files)))
    assert again.commit == first.commit


def test_nothing_but_times_depends_on_the_date(repository: Repository, packages: tuple[Package, ...]) -> None:
    first, later = repository.compose(packages), repository.compose(packages, now=LATER)
    seconds, later_seconds = (str(int(moment.timestamp())).encode() for moment in (NOW, LATER))
    assert first.commit != later.commit
    assert first.commit.replace(seconds, later_seconds) == later.commit
    assert [file.location for file in first.files] == [file.location for file in later.files]


def test_where_nothing_changed_the_commit_stays(repository: Repository, packages: tuple[Package, ...]) -> None:
    first = repository.compose(packages)
    assert repository.compose(packages, previous=first.commit, now=LATER).commit == first.commit
    assert repository.compose(packages[:1], previous=first.commit, now=LATER).commit != first.commit


def test_files_are_named_by_their_digests_and_the_commit_names_them(
    repository: Repository, packages: tuple[Package, ...]
) -> None:
    metadata = repository.compose(packages)
    expected = []
    for kind, file in zip(KINDS, metadata.files, strict=True):
        content = file.path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        location = ROOT.child(f"x86_64/repodata/{sha256}-{kind}.xml.gz")
        expected.append((location, len(content), sha256))
        assert (file.location, file.content_type) == (location, "application/gzip")
        assert content[4:8] == bytes(4), "the time in the gzip header (RFC 1952)"
    references = repository.kind.referenced(metadata.commit)
    assert [(item.location, item.size_bytes, item.sha256) for item in references] == expected
    assert (metadata.commit_content_type, metadata.plain) == ("application/xml", ())
    assert b"<repo>dev</repo>" in metadata.commit


def test_the_href_is_the_name_in_the_pool_as_it_is(repository: Repository, built: Path) -> None:
    """dnf encodes it by itself: tests/integration/test_dnf.py."""
    package = repository.inspect(built / NAMES[1], "gcc-c++-1.0-1.noarch.0123456789ab.rpm")
    assert (
        '<location href="gcc-c++-1.0-1.noarch.0123456789ab.rpm"/>' in opened(repository.compose([package]))["primary"]
    )


def test_no_packages_are_a_repository_too(repository: Repository) -> None:
    metadata = repository.compose([])
    assert repository.read(*(file.path for file in metadata.files)) == ()


def test_what_a_commit_names_beside_the_packages_stays_but_for_what_is_made_of_them(
    repository: Repository, packages: tuple[Package, ...], built: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(built, tmp_path / "repository"))
    program("createrepo_c", "--quiet", "--database", folder)
    advisories = tmp_path / "updateinfo.xml"
    advisories.write_text("<updates/>")
    program("modifyrepo_c", advisories, folder / "repodata")
    previous = (folder / "repodata/repomd.xml").read_bytes()
    assert b"primary_db" in previous
    commit = repository.compose(packages, previous=previous).commit
    assert b'type="updateinfo"' in commit
    assert b"_db" not in commit
    assert b'type="updateinfo"' in repository.compose(packages[:1], previous=commit).commit


def test_a_commit_that_is_none_is_replaced(repository: Repository, packages: tuple[Package, ...]) -> None:
    assert repository.compose(packages, previous=b"<html>").commit == repository.compose(packages).commit


def test_a_folder_that_cannot_be_written_is_told(repository: Repository, packages: tuple[Package, ...]) -> None:
    with pytest.raises(LocalFileError, match="cannot be written"):
        repository.kind.compose(packages, repository.folder / "missing", previous=None, now=NOW, label="dev")


# Metadata that are read


@pytest.mark.parametrize(
    "options",
    [
        ["--general-compress-type=gz"],
        ["--general-compress-type=bz2"],
        ["--general-compress-type=xz"],
        ["--general-compress-type=zstd"],
        ["--database"],
        ["--no-database", "--simple-md-filenames"],
        ["--filelists-ext"],
    ],
    ids=" ".join,
)
def test_repositories_of_createrepo_c_are_read(
    options: list[str], repository: Repository, packages: tuple[Package, ...], built: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(built, tmp_path / "repository"))
    program("createrepo_c", "--quiet", *options, folder)
    found = {package.file_name: package for package in repository.read_folder(folder)}
    assert sorted(found) == sorted(NAMES)
    for package in packages:
        theirs = found[package.file_name]
        assert (theirs.identity, theirs.size_bytes, theirs.sha256) == (
            package.identity,
            package.size_bytes,
            package.sha256,
        )


def test_repositories_of_mergerepo_c_are_read(repository: Repository, built: Path, tmp_path: Path) -> None:
    folders = []
    for name in NAMES:
        folder = tmp_path / name[:4]
        folder.mkdir()
        shutil.copy(built / name, folder)
        program("createrepo_c", "--quiet", folder)
        folders.append(f"--repo={folder}")
    program("mergerepo_c", "--database", *folders, f"--outputdir={tmp_path}/merged")
    found = repository.read_folder(tmp_path / "merged")
    assert sorted(package.file_name for package in found) == sorted(NAMES)
    assert "xml:base" not in opened(repository.compose(found))["primary"]


def test_all_that_another_program_said_of_a_package_stays(repository: Repository, built: Path, tmp_path: Path) -> None:
    import createrepo_c

    folder = Path(shutil.copytree(built, tmp_path / "repository"))
    program("createrepo_c", "--quiet", "--changelog-limit=1000", folder)
    paths = {path.name.partition("-")[2].partition(".")[0]: str(path) for path in (folder / "repodata").glob("*-*")}
    theirs = {
        package.location_href: createrepo_c.xml_dump(package)
        for package in createrepo_c.PackageIterator(paths["primary"], paths["filelists"], paths["other"])
    }
    composed = repository.compose(repository.read_folder(folder))
    ours = {package.file_name: said(package) for package in repository.read(*(file.path for file in composed.files))}
    assert ours == theirs
    text = "".join(theirs[NAMES[0]])
    for piece in ("recommended", "suggested", "supplemented", "enhanced", 'pre="1"', "ghost", "second", "first"):
        assert piece in text


def test_the_order_of_packages_may_differ_between_the_files(
    repository: Repository, packages: tuple[Package, ...], tmp_path: Path
) -> None:
    def turned(kind: str, text: str) -> str:
        head, *parts = text.split("<package ")
        parts[-1], end = parts[-1].rsplit("</", 1)
        return text if kind == "primary" else "<package ".join([head, *reversed(parts)]) + f"</{end}"

    found = repository.read(*xml_files(tmp_path, repository.compose(packages), turned))
    assert [said(package) for package in found] == [said(package) for package in reversed(packages)]


def test_one_package_under_two_names_is_two_entries_with_all_their_files(
    repository: Repository, built: Path, tmp_path: Path
) -> None:
    shutil.copy(built / NAMES[1], tmp_path / "first.rpm")
    shutil.copy(built / NAMES[1], tmp_path / "second.rpm")
    both = [repository.inspect(tmp_path / name) for name in ("first.rpm", "second.rpm")]
    found = repository.read(*(file.path for file in repository.compose(both).files))
    assert [package.file_name for package in found] == ["first.rpm", "second.rpm"]
    assert [said(package) for package in found] == [said(package) for package in both]


HOSTILE = {
    "document type": ("primary", "<metadata ", "<!DOCTYPE x [<!ENTITY e 'y'>]><metadata ", "does not begin as"),
    "other root": ("other", "otherdata", "anotherdata", "does not begin as"),
    "cut off": ("primary", "</metadata>", "", "createrepo_c says"),
    "no text": ("filelists", "<", "", "does not begin as"),
    "not in filelists": ("filelists", 'pkgid="', 'pkgid="0', "filelists.xml lacks 2 packages"),
    "not in other": ("other", 'pkgid="', 'pkgid="0', "other.xml lacks 2 packages"),
    "name for a shell": ("primary", "<name>gcc-c++</name>", "<name>$(reboot)</name>", "the name '$(reboot)'"),
    "name with a line": ("primary", "<name>gcc-c++</name>", "<name>a&#10;::error::b</name>", "the name"),
    "epoch": ("primary", 'epoch="0"', 'epoch="-1"', "the epoch"),
    "epoch too large": ("primary", 'epoch="0"', 'epoch="2147483648"', "the epoch 2147483648, which is above"),
    "version": ("primary", 'ver="1.0"', 'ver="1/0"', "the version"),
    "release": ("primary", 'rel="1"', 'rel=""', "the release"),
    "architecture": ("primary", "<arch>noarch", "<arch>no arch", "the architecture"),
    "folder above": ("primary", 'href="gcc', 'href="../gcc', "is in the file"),
    "folder below": ("primary", 'href="gcc', 'href="p/gcc', "is in the file"),
    "address": ("primary", 'href="gcc', 'href="https://example.invalid/gcc', "is in the file"),
    "no file": ("primary", '<location href="gcc-c++-1.0-1.noarch.rpm"/>', "", "is in the file"),
    "other digest": ("primary", 'type="sha256"', 'type="sha512"', "has no SHA-256"),
    "no digest": ("primary", 'pkgid="YES">', 'pkgid="YES">x', "lacks 2 packages"),
}


@pytest.mark.parametrize(("kind", "old", "new", "fault"), HOSTILE.values(), ids=HOSTILE)
def test_metadata_that_no_honest_program_writes_are_refused(
    *,
    kind: str,
    old: str,
    new: str,
    fault: str,
    repository: Repository,
    packages: tuple[Package, ...],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def changed(this_kind: str, text: str) -> str:
        if this_kind != kind:
            return text
        assert old in text
        return text.replace(old, new)

    paths = xml_files(tmp_path, repository.compose(packages), changed)
    with pytest.raises(IntegrityError) as caught:
        repository.read(*paths)
    assert fault in caught.value.why
    assert "\n" not in caught.value.why
    assert str(tmp_path) not in caught.value.why
    assert capfd.readouterr() == ("", "")


def _zstd(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


COMPRESSORS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": _zstd}


@pytest.mark.parametrize("compress", COMPRESSORS.values(), ids=COMPRESSORS)
def test_compressed_files_that_are_damaged_are_refused(
    compress: Callable[[bytes], bytes], repository: Repository, packages: tuple[Package, ...], tmp_path: Path
) -> None:
    paths = xml_files(tmp_path, repository.compose(packages))
    content = compress(paths[0].read_bytes())
    middle = len(content) // 2
    for damaged in (content[:-9], content[:middle] + b"\xff\0\xff\0" + content[middle + 4 :], content[:8]):
        paths[0].write_bytes(damaged)
        with pytest.raises(IntegrityError, match="damaged"):
            repository.read(*paths)


@pytest.mark.parametrize("compress", COMPRESSORS.values(), ids=COMPRESSORS)
def test_a_file_that_grows_without_end_is_given_up(
    compress: Callable[[bytes], bytes],
    repository: Repository,
    packages: tuple[Package, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_rpm_metadata, "MAX_OPEN_BYTES", 2 * 2**20)
    paths = xml_files(tmp_path, repository.compose(packages))
    paths[1].write_bytes(compress(paths[1].read_bytes() + bytes(20 * 2**20)))
    with pytest.raises(IntegrityError, match="more than 2,097,152 bytes"):
        repository.read(*paths)


def test_each_kind_of_file_must_be_there_once(
    repository: Repository, packages: tuple[Package, ...], tmp_path: Path
) -> None:
    paths = xml_files(tmp_path, repository.compose(packages))
    with pytest.raises(IntegrityError, match=r"no other\.xml"):
        repository.read(*paths[:2])
    copy = Path(shutil.copy(paths[0], tmp_path / "copy"))
    with pytest.raises(IntegrityError, match=r"two files of it are primary\.xml"):
        repository.read(*paths, copy)
    with pytest.raises(IntegrityError, match=r"no primary\.xml"):
        repository.read()


def test_a_metadata_file_that_is_gone_is_an_error_of_the_file_system(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match="cannot be decompressed"):
        repository.read(tmp_path / "gone")


def test_a_cancel_stops_the_reading_of_metadata(repository: Repository, packages: tuple[Package, ...]) -> None:
    metadata = repository.compose(packages)
    repository.cancel.cancel()
    with pytest.raises(CancelledError):
        repository.read(*(file.path for file in metadata.files))


COMMITS = {
    "empty": (None, b"", "does not begin as"),
    "page": (None, b"<html></html>", "does not begin as"),
    "other element": (b"repomd", b"repomds", "does not begin as"),
    "document type": (b"<repomd", b"<!DOCTYPE x><repomd", "does not begin as"),
    "UTF-16": (None, "<repomd/>".encode("utf-16"), "does not begin as"),
    "cut off": (b"</repomd>", b"", "createrepo_c says"),
    "no primary": (b'type="primary"', b'type="secondary"', "it is missing"),
    "no type": (b'<data type="other"', b"<data", "it is missing"),
    "other digest": (b'<checksum type="sha256"', b'<checksum type="sha1"', "no SHA-256"),
    "short digest": (b'<checksum type="sha256">', b'<checksum type="sha256">0', "no SHA-256"),
    "no size": (b"<size>", b"<size>-", "no size"),
    "above": (b'href="repodata/', b'href="../repodata/', "'..'"),
    "absolute": (b'href="repodata/', b'href="/repodata/', "empty segment"),
    "line": (b'href="repodata/', b'href="repodata/&#10;', "control character"),
    "nowhere": (b"<location href", b"<location nothref", "empty segment"),
    "elsewhere": (b"<location ", b'<location xml:base="https://example.invalid/" ', "another repository"),
}


@pytest.mark.parametrize(("old", "new", "fault"), COMMITS.values(), ids=COMMITS)
def test_a_commit_that_is_none_is_refused(
    *,
    old: bytes | None,
    new: bytes,
    fault: str,
    repository: Repository,
    packages: tuple[Package, ...],
    capfd: pytest.CaptureFixture[str],
) -> None:
    commit = repository.compose(packages).commit
    assert old is None or old in commit
    with pytest.raises(IntegrityError) as caught:
        repository.kind.referenced(new if old is None else commit.replace(old, new))
    assert fault in caught.value.why
    assert capfd.readouterr() == ("", "")


def test_random_damage_ends_in_our_errors_only(
    repository: Repository, packages: tuple[Package, ...], tmp_path: Path
) -> None:
    metadata = repository.compose(packages)
    paths = xml_files(tmp_path, metadata)
    contents = [path.read_bytes() for path in paths]
    chooser = random.Random(11)
    outcomes = set()
    for _ in range(300):
        which = chooser.randrange(4)
        data = bytearray(metadata.commit if which == 3 else contents[which])
        for _ in range(chooser.choice((1, 2, 8))):
            data[chooser.randrange(len(data))] = chooser.choice((0, 60, 62, 34, 38, 255, chooser.randrange(256)))
        try:
            if which == 3:
                repository.kind.referenced(bytes(data))
            else:
                paths[which].write_bytes(data)
                repository.read(*paths)
            outcomes.add("read")
        except OutputsError as error:
            outcomes.add(type(error).__name__)
        finally:
            for path, content in zip(paths, contents, strict=True):
                path.write_bytes(content)
    assert outcomes == {"read", "IntegrityError"}


# The mode, with this kind of repository


POOL = f"{STAGED}/100-linux/packages/rpm/x86_64"


def upload(workspace: Path, *names: str, built: Path) -> Report:
    """Upload these packages as a job of their own does."""
    folder = workspace / "packages"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in names:
        shutil.copy(built / name, folder)
    return run(make_context(workspace, Mode.UPLOAD_PACKAGES, path="packages", package_type="rpm"))


def named(repository: Repository, workspace: Path) -> list[str]:
    """The package files that the staged repository's metadata name."""
    return sorted(package.file_name for package in repository.read_folder(workspace / POOL))


def test_jobs_add_their_packages_to_one_repository(repository: Repository, built: Path, tmp_path: Path) -> None:
    reports = [upload(tmp_path, name, built=built) for name in NAMES]
    assert [report.error for report in reports] == [None, None]
    assert named(repository, tmp_path) == sorted(NAMES)
    assert reports[0].outputs["package_repository_url"].endswith("/100-linux/packages/rpm/x86_64")


def test_the_same_upload_again_changes_nothing(built: Path, tmp_path: Path) -> None:
    upload(tmp_path, *NAMES, built=built)
    before = {path.name: path.read_bytes() for path in (tmp_path / POOL).rglob("*.*") if path.is_file()}
    upload(tmp_path, *NAMES, built=built)
    assert {path.name: path.read_bytes() for path in (tmp_path / POOL).rglob("*.*") if path.is_file()} == before


def test_one_broken_package_and_nothing_is_stored(built: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in NAMES:
        shutil.copy(built / name, broken)
    (broken / NAMES[1]).write_bytes((built / NAMES[1]).read_bytes()[:-1])
    report = upload(tmp_path, *NAMES, built=broken)
    assert isinstance(report.error, OutputsError)
    assert [item.path for item in report.result.failed] == [NAMES[1]]
    assert not (tmp_path / POOL).exists()


@pytest.mark.parametrize("damage", ["no repomd.xml", "no primary.xml", "other bytes", "another digest"])
def test_metadata_that_cannot_be_used_are_made_again_of_what_is_stored(
    damage: str, repository: Repository, built: Path, tmp_path: Path
) -> None:
    upload(tmp_path, NAMES[0], built=built)
    repodata = tmp_path / POOL / "repodata"
    (primary,) = repodata.glob("*-primary.xml.gz")
    if damage == "no repomd.xml":
        (repodata / "repomd.xml").unlink()
    elif damage == "no primary.xml":
        primary.unlink()
    elif damage == "other bytes":
        primary.write_bytes(bytes(primary.stat().st_size))
    else:
        program("createrepo_c", "--quiet", "--checksum=sha512", tmp_path / POOL)
    report = upload(tmp_path, NAMES[1], built=built)
    assert report.error is None
    assert named(repository, tmp_path) == sorted(NAMES)
    assert any("made again" in warning for warning in report.warnings) == (damage != "no repomd.xml")
