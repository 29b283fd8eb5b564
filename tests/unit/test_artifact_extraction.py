"""An honest archive becomes exactly its tree; any other is refused, names the member and leaves nothing."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import subprocess
import tarfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _therock_utils import _folder
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, IntegrityError, LocalFileError
from fakes import archives
from fakes.archives import REFUSED, Entry, file, folder, hard_link, manifest, snapshot, symbolic_link, write_archive
from therock_outputs import _tar_stream, artifact_extraction
from therock_outputs._tar_members import read_members
from therock_outputs.artifact_extraction import ExtractedArchive, HostileArchiveError, Layout, extract_archive

if TYPE_CHECKING:
    from collections.abc import Sequence

PLENTY = 100 * 1024 * 1024


def extract(
    archive: Path, folder: Path, *, layout: Layout = "extract", most: int = PLENTY, cancel: CancelToken | None = None
) -> ExtractedArchive:
    return extract_archive(archive, folder, layout=layout, max_extracted_bytes=most, cancel=cancel or CancelToken())


@pytest.fixture(params=["zst", "xz"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Cage:
    """A folder to extract in, with canaries around it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "a" / "b" / "tree"
        self.folder.parent.mkdir(parents=True)
        for name in ("canary", "x", "escaped", "a/canary", "a/x", "a/b/canary", "a/b/x"):
            (root / name).write_text("untouched")
        self._before = snapshot(root)

    def check(self) -> None:
        """Nothing but the folder's own content has changed."""
        inside = f"{self.folder.relative_to(self.root).as_posix()}"
        after = {
            name: entry
            for name, entry in snapshot(self.root).items()
            if name != inside and not name.startswith(f"{inside}/")
        }
        assert after == self._before


@pytest.fixture
def cage(tmp_path: Path) -> Cage:
    return Cage(tmp_path / "cage")


HONEST: tuple[Entry, ...] = (
    manifest("math/stage"),
    folder("math/stage/empty"),
    file("math/stage/lib/libx.so.1", b"\x7fELF" + bytes(range(256)) * 2000, mode=0o755),
    symbolic_link("math/stage/lib/libx.so", "libx.so.1"),
    symbolic_link("math/stage/link", "../stage/lib"),
    hard_link("math/stage/lib/same", "math/stage/lib/libx.so.1"),
    file("math/stage/share/read me \u00e9 \u6f22.txt", b"text", mode=0o640, modified=1_600_000_000),
    file("math/stage/share/gfx942:xnack+", b"", mode=0o600),
)


def test_an_honest_archive_becomes_exactly_its_tree(kind: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / f"blas_lib_generic.tar.{kind}", HONEST)
    extracted = extract(archive, tmp_path / "out")
    program = HONEST[2].content
    assert snapshot(tmp_path / "out") == {
        "artifact_manifest.txt": ("file", b"math/stage\n", 0o644, "artifact_manifest.txt"),
        "math": ("folder", 0o755),
        "math/stage": ("folder", 0o755),
        "math/stage/empty": ("folder", 0o755),
        "math/stage/lib": ("folder", 0o755),
        "math/stage/lib/libx.so": ("link", "libx.so.1"),
        "math/stage/lib/libx.so.1": ("file", program, 0o755, "math/stage/lib/libx.so.1"),
        "math/stage/lib/same": ("file", program, 0o755, "math/stage/lib/libx.so.1"),
        "math/stage/link": ("link", "../stage/lib"),
        "math/stage/share": ("folder", 0o755),
        "math/stage/share/gfx942:xnack+": ("file", b"", 0o644, "math/stage/share/gfx942:xnack+"),
        "math/stage/share/read me \u00e9 \u6f22.txt": ("file", b"text", 0o644, HONEST[6].name),
    }
    assert extracted == ExtractedArchive(tmp_path / "out", (), len(HONEST), sum(len(entry.content) for entry in HONEST))


def test_a_time_of_zero_is_none_and_others_are_kept(tmp_path: Path) -> None:
    times = {"none": 0.0, "kept": 1_600_000_000.5, "before": -5.0, "never": 1e18}
    archive = write_archive(tmp_path / "a.tar.zst", [file(name, modified=modified) for name, modified in times.items()])
    odd = (Entry("infinite", pax=(("mtime", "inf"),)), Entry("not a number", pax=(("mtime", "nan"),)))
    extract(archive, tmp_path / "out")
    extract(write_archive(tmp_path / "b.tar.zst", odd), tmp_path / "odd")
    assert (tmp_path / "out/kept").stat().st_mtime == 1_600_000_000.5
    now = (tmp_path / "a.tar.zst").stat().st_mtime
    others = [tmp_path / "out" / name for name in ("none", "before", "never")]
    others += [tmp_path / "odd" / entry.name for entry in odd]
    assert all(path.stat().st_mtime >= now - 5 for path in others)


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar.zst", [folder("made", mode=0o2700), file("implied/run", mode=0o700)])
    earlier = os.umask(0o077)
    try:
        extract(archive, tmp_path / "out")
    finally:
        os.umask(earlier)
    modes = {name: entry[1 if entry[0] == "folder" else 2] for name, entry in snapshot(tmp_path / "out").items()}
    assert modes == {"made": 0o755, "implied": 0o755, "implied/run": 0o755}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755


def test_the_compression_is_read_from_the_bytes_not_from_the_name(kind: str, tmp_path: Path) -> None:
    extract(write_archive(tmp_path / "cached", [file("a", b"1")], kind=kind), tmp_path / "out")
    assert (tmp_path / "out/a").read_bytes() == b"1"


@pytest.mark.parametrize("layout", ["flatten", "bootstrap"])
def test_the_manifest_s_subtrees_are_told_there_or_not(layout: Layout, tmp_path: Path) -> None:
    listed = file(archives.MANIFEST, b"math/stage\r\n\r\ncore/hip/stage\n")
    archive = write_archive(tmp_path / "a.tar.zst", [listed, folder("math"), file("math/stage/x")])
    assert extract(archive, tmp_path / "out", layout=layout).subtrees == ("math/stage", "core/hip/stage")


def test_a_repeated_folder_the_root_and_dots_in_names_are_harmless(tmp_path: Path) -> None:
    entries = [
        folder("."),
        folder("./a"),
        folder("a"),
        file("./a/./b//c", b"1"),
        folder("a/b"),
        hard_link("d", "./a/b/c"),
    ]
    extracted = extract(write_archive(tmp_path / "a.tar.zst", entries), tmp_path / "out")
    assert set(snapshot(tmp_path / "out")) == {"a", "a/b", "a/b/c", "d"}
    assert extracted.member_count == 5


def test_several_frames_one_after_another_are_one_archive(kind: str, tmp_path: Path) -> None:
    data = archives.tar_bytes([file("a", b"x" * 5000), file("b", os.urandom(200_000))])
    parts = [archives.compressed(data[at : at + 1777], kind) for at in range(0, len(data), 1777)]
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc" if kind == "zst" else b""
    padding = bytes(8) if kind == "xz" else b""
    archive = tmp_path / "a"
    archive.write_bytes(archives.compressed(b"", kind) + skippable + b"".join(parts) + padding)
    extract(archive, tmp_path / "out")
    assert (tmp_path / "out/a").read_bytes() == b"x" * 5000


_FORMATS = [
    pytest.param(rule, tar_format, id=f"{rule}-{name}")
    for rule, (entries, _) in REFUSED.items()
    for name, tar_format in (("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT))
    if tar_format == tarfile.PAX_FORMAT or not any(entry.pax for entry in entries)  # the other has no such headers
]


@pytest.mark.parametrize(("rule", "tar_format"), _FORMATS)
@pytest.mark.parametrize("has_descriptors", [True, False], ids=["descriptors", "paths"])
def test_a_hostile_member_is_refused_by_name_and_leaves_nothing(
    rule: str, tar_format: int, has_descriptors: bool, cage: Cage, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_descriptors:  # as on Windows
        monkeypatch.setattr(_folder, "_HAS_FOLDER_DESCRIPTORS", has_descriptors)
        monkeypatch.setattr(artifact_extraction, "_BY_DESCRIPTOR", has_descriptors)
    entries, text = REFUSED[rule]
    archive = write_archive(cage.root.parent / "a.tar.zst", [file("ok", b"1"), *entries], tar_format=tar_format)
    with pytest.raises(HostileArchiveError) as caught:
        extract(archive, cage.folder)
    assert text in caught.value.rule
    if rule != "huge header":  # which has no name yet
        names = {
            name for entry in entries for name in (entry.name, entry.name.rstrip("/"), dict(entry.pax).get("path"))
        }
        assert caught.value.member in names
    assert not cage.folder.exists()
    cage.check()


def test_a_hostile_name_cannot_act_in_a_message(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a\u202e.tar.zst", [symbolic_link("\u202ex\n::error::y", "/")])
    with pytest.raises(HostileArchiveError) as caught:
        extract(archive, tmp_path / "out")
    text = str(caught.value)
    assert text.isascii()
    assert r"\u202ex\n::error::y" in text
    assert "\n::" not in text
    assert caught.value.exit_code == IntegrityError.exit_code


def test_deep_and_long_names_within_the_bounds_are_kept(tmp_path: Path) -> None:
    deep, long = "/".join(["d"] * 255 + ["file"]), "/".join(["l" * 200] * 20)
    extract(write_archive(tmp_path / "a.tar.zst", [file(deep, b"1"), file(long, b"2")]), tmp_path / "out")
    found = tmp_path / "out"
    for segment in deep.split("/"):
        assert (found / segment).exists()
        found /= segment
    assert found.read_bytes() == b"1"
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    for segment in long.split("/"):
        inner = os.open(segment, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    assert os.read(descriptor, 9) == b"2"
    os.close(descriptor)


IN_MANIFEST: dict[str, tuple[Sequence[Entry], str]] = {
    "missing": ([], "it is missing"),
    "not first": ([file("a/x"), manifest("a")], "the first member"),
    "a folder first": ([folder("a"), manifest("a")], "the first member"),
    "a folder": ([folder(archives.MANIFEST)], "the first member"),
    "a link": ([symbolic_link(archives.MANIFEST, "a")], "the first member"),
    "too big": ([file(archives.MANIFEST, b"a\n" * (1 << 20))], "more than 1048576 bytes"),
    "not UTF-8": ([file(archives.MANIFEST, b"caf\xe9\n")], "not UTF-8"),
    "absolute": ([manifest("/a")], "empty segment"),
    "dot": ([manifest(".")], "'.'"),
    "parent": ([manifest("a/../..")], "'..'"),
    "slash at the end": ([manifest("a/")], "empty segment"),
    "backslash": ([manifest("a\\b")], "backslash"),
    "control character": ([manifest("a\x07")], "control character"),
    "too deep": ([manifest("/".join(["a"] * 257))], "more than 256 segments"),
    "twice": ([manifest("a", "b", "a")], "twice"),
    "nested": ([manifest("a/stage/b", "a/stage")], "around it"),
    "outside": ([manifest("a/stage"), file("a/x")], "in no subtree"),
    "sibling": ([manifest("a/stage"), file("a/stage2/x")], "in no subtree"),
    "folder outside": ([manifest("a/stage"), folder("b")], "in no subtree"),
    "link above": ([manifest("a/stage"), symbolic_link("a", ".")], "in no subtree"),
    "a file for a subtree": ([manifest("a/stage"), file("a/stage")], "lists it as a folder"),
    "a link for a subtree": ([manifest("a/stage"), symbolic_link("a/stage", "x")], "lists it as a folder"),
    "link out of the subtree": ([manifest("a/stage"), symbolic_link("a/stage/l", "../x")], "out of its subtree"),
    "deep link out": ([manifest("a/stage"), symbolic_link("a/stage/b/l", "../../stage/x")], "out of its subtree"),
}


@pytest.mark.parametrize("rule", IN_MANIFEST)
@pytest.mark.parametrize("layout", ["flatten", "bootstrap"])
def test_where_subtrees_move_the_manifest_must_hold(rule: str, layout: Layout, tmp_path: Path) -> None:
    entries, text = IN_MANIFEST[rule]
    archive = write_archive(tmp_path / "a.tar.zst", entries)
    with pytest.raises(HostileArchiveError) as caught:
        extract(archive, tmp_path / "out", layout=layout)
    assert text in caught.value.rule
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rule", sorted(set(IN_MANIFEST) - {"too big"}))
def test_where_the_whole_folder_stays_the_manifest_is_a_file_like_others(rule: str, tmp_path: Path) -> None:
    entries, _ = IN_MANIFEST[rule]
    extract(write_archive(tmp_path / "a.tar.zst", entries), tmp_path / "out")
    assert {entry.name for entry in entries} <= set(snapshot(tmp_path / "out"))


def test_a_bomb_stops_before_a_byte_of_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archives.zeros_bomb(tmp_path / "a.tar.zst", 1 << 30)
    assert archive.stat().st_size < 200_000
    copied: list[int] = []
    monkeypatch.setattr(_tar_stream.TarStream, "copy_to", lambda _self, _to, size_bytes: copied.append(size_bytes))
    with pytest.raises(HostileArchiveError, match="more than 10000000 bytes"):
        extract(archive, tmp_path / "out", most=10_000_000)
    assert copied == []
    assert not (tmp_path / "out").exists()


def test_the_bound_counts_content_and_headers_to_the_byte(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar.zst", [file("a", bytes(1000)), folder("b"), file("c", bytes(24))])
    total = 1024 + 3 * 512
    with pytest.raises(HostileArchiveError, match="'c'") as caught:
        extract(archive, tmp_path / "out", most=total - 1)
    assert "raise max_extracted_bytes if you trust it" in str(caught.value)
    assert extract(archive, tmp_path / "out", most=total).extracted_bytes == 1024


def test_millions_of_empty_members_count_too(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar.zst", [file(f"{number}") for number in range(1000)])
    with pytest.raises(HostileArchiveError, match="'100'"):
        extract(archive, tmp_path / "out", most=100 * 512)


def test_zeros_without_end_after_the_end_mark_are_damage(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.zst"
    for zeros_bytes, is_refused in ((1 << 24, True), (1 << 19, False)):
        archive.write_bytes(archives.compressed(archives.tar_bytes([file("a")]) + bytes(zeros_bytes), "zst"))
        if is_refused:
            with pytest.raises(IntegrityError, match="more than 1048576 zeros"):
                extract(archive, tmp_path / "out")
        else:
            extract(archive, tmp_path / "out")


def test_a_header_of_headers_without_end_is_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1
    data = (header.tobuf(tarfile.GNU_FORMAT) + b"x" + bytes(511)) * 2000
    archive = tmp_path / "a.tar.zst"
    archive.write_bytes(archives.compressed(data, "zst"))
    with pytest.raises(HostileArchiveError, match="headers take more"):
        extract(archive, tmp_path / "out")


def with_pax_bytes(body: bytes, pax_type: bytes) -> bytes:
    """A tar whose one file has pax records of these bytes, sound or not."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = pax_type, len(body)
    return header.tobuf() + body + bytes(-len(body) % 512) + tarfile.TarInfo("a").tobuf() + bytes(1024)


def with_pax_body(tmp_path: Path, body: bytes, pax_type: bytes = tarfile.XHDTYPE) -> Path:
    archive = tmp_path / "pax.tar.zst"
    archive.write_bytes(archives.compressed(with_pax_bytes(body, pax_type), "zst"))
    return archive


BAD_RECORDS = {
    "no record": b"nonsense",
    "no length": b" path=x\n",
    "no keyword": b"8 =abcd\n",
    "no value": b"6 path\n",
    "length of nothing": b"0 path=x\n",
    "length within the keyword": b"4 path=x\n",
    "length past the end": b"4000 path=x\n",
    "no line's end": b"9 path=xy\n",
    "the second": b"10 path=x\n10path=x\n",
    "endless keywords": b"2 " * 50_000 + b"=x\n",
}


@pytest.mark.parametrize("fault", BAD_RECORDS)
@pytest.mark.parametrize("pax_type", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE])
def test_unsound_pax_records_are_damage(fault: str, pax_type: bytes, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="a pax header"):
        extract(with_pax_body(tmp_path, BAD_RECORDS[fault], pax_type), tmp_path / "out")


def test_pax_records_that_do_not_matter_are_not_kept(tmp_path: Path) -> None:
    records = b"".join(b"128 SCHILY.xattr.user.%04d=%s\n" % (number, b"x" * 100) for number in range(5000))
    body = b"10 path=x\n" + records + b"11 path=yy\n23 mtime=1600000000.25\n"
    for pax_type in (tarfile.XHDTYPE, tarfile.XGLTYPE):
        stream = _tar_stream.TarStream(tmp_path, iter([with_pax_bytes(body, pax_type)]))
        (member,) = read_members(tmp_path, stream)
        assert (member.name, member.modified_seconds) == ("yy", 1_600_000_000.25)
        assert member.header_bytes > len(body)


@pytest.mark.parametrize("keyword", ["path", "linkpath"])
def test_a_pax_name_is_bounded_before_it_is_parsed(keyword: str, tmp_path: Path) -> None:
    record = f" {keyword}={'1' * 500_000}\n"
    body = f"{len(record) + 6}{record}".encode()
    with pytest.raises(HostileArchiveError, match="more than 4096 bytes"):
        extract(with_pax_body(tmp_path, body), tmp_path / "out")


@pytest.mark.parametrize("part", [0.001, 0.1, 0.5, 0.9, 0.9999])
def test_a_cut_archive_is_damaged_and_leaves_nothing(part: float, kind: str, tmp_path: Path) -> None:
    archive = write_archive(
        tmp_path / f"a.tar.{kind}", [file("a", os.urandom(300_000)), file("b", os.urandom(300_000))]
    )
    data = archive.read_bytes()
    archive.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(IntegrityError, match="damaged"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cut", [1, 512, 513, 1024, 1500, 2048])
def test_a_tar_that_was_cut_before_it_was_compressed_is_damaged(cut: int, tmp_path: Path) -> None:
    data = archives.tar_bytes([file("a", bytes(1000)), file("b")])
    archive = tmp_path / "a.tar.zst"
    archive.write_bytes(archives.compressed(data[:cut], "zst"))
    with pytest.raises(IntegrityError, match="no end mark"):
        extract(archive, tmp_path / "out")


@pytest.mark.parametrize("garbage", [b"garbage!", b"\0\0\0\1", b"\xfd7zXZ\0\0\0"])
def test_trailing_bytes_are_damage(garbage: bytes, kind: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / f"a.tar.{kind}", [file("a", b"1")])
    whole = archive.read_bytes()
    archive.write_bytes(whole + garbage)
    with pytest.raises(IntegrityError, match="damaged"):
        extract(archive, tmp_path / "out")
    archive.write_bytes(whole + archives.compressed(bytes(511) + b"x", kind))
    with pytest.raises(IntegrityError, match="follow the end"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x03\x04" + bytes(600), bytes(1024)])
def test_what_is_no_archive_is_damaged(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(IntegrityError, match="damaged"):
        extract(tmp_path / "a", tmp_path / "out")


def test_a_flipped_bit_is_noticed(kind: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / f"a.tar.{kind}", [file("a", os.urandom(300_000))])
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    if kind == "zst":  # its frame has no checksum here: the archive's digest is what notices
        data[4] ^= 0xFF
        archive.write_bytes(data)
    with pytest.raises(IntegrityError):
        extract(archive, tmp_path / "out")


def test_a_window_of_more_than_128_mib_is_refused(tmp_path: Path) -> None:
    header = b"\x28\xb5\x2f\xfd" + bytes([0x00, (28 - 10) << 3]) + b"\x01\x00\x00"  # RFC 8878, 3.1.1.1.2
    (tmp_path / "a").write_bytes(header)
    with pytest.raises(IntegrityError, match="more than 128 MiB of memory"):
        extract(tmp_path / "a", tmp_path / "out")
    allowed = b"\x28\xb5\x2f\xfd" + bytes([0x00, (27 - 10) << 3]) + b"\x01\x00\x00"
    (tmp_path / "a").write_bytes(allowed)
    with pytest.raises(IntegrityError, match="no end mark"):
        extract(tmp_path / "a", tmp_path / "out")


def test_an_xz_dictionary_of_more_than_128_mib_is_refused(tmp_path: Path) -> None:
    data = archives.tar_bytes([file("a")])
    for size, text in ((1 << 28, "more than 128 MiB of memory"), (1 << 27, "")):
        small = lzma.compress(data, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 16}])
        patched = _with_dictionary(small, size)
        (tmp_path / "a").write_bytes(patched)
        if text:
            with pytest.raises(IntegrityError, match=text):
                extract(tmp_path / "a", tmp_path / "out")
        else:
            extract(tmp_path / "a", tmp_path / "out")


def _with_dictionary(data: bytes, size: int) -> bytes:
    """The xz stream `data` with another dictionary size in its one block header (the xz file format, 3.1 and 5.3.1)."""
    start = 12
    length = (data[start] + 1) * 4
    header = bytearray(data[start : start + length - 4])
    position = header.index(b"\x21\x01") + 2
    bits = size.bit_length() - 1
    header[position] = (bits - 12) * 2
    checksum = zlib.crc32(header).to_bytes(4, "little")
    return data[:start] + bytes(header) + checksum + data[start + length :]


@pytest.mark.parametrize("field", ["size", "mtime", "mode"])
def test_a_negative_number_in_a_header_does_no_harm(field: str, tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT))
    start, length = {"size": (124, 12), "mtime": (136, 12), "mode": (100, 8)}[field]
    header[start : start + length] = b"\xff" * (length - 2) + b"\xfe\x00"  # base-256, GNU tar manual, "Standard"
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    archive = tmp_path / "a.tar.zst"
    archive.write_bytes(archives.compressed(bytes(header) + bytes(1024), "zst"))
    if field == "mtime":
        extract(archive, tmp_path / "out")
        return
    with pytest.raises(IntegrityError):
        extract(archive, tmp_path / "out")


def test_a_bad_checksum_in_the_middle_is_no_end(tmp_path: Path) -> None:
    data = bytearray(archives.tar_bytes([file("a", b"1"), file("b", b"2"), file("c", b"3")]))
    data[1024] ^= 1
    archive = tmp_path / "a.tar.zst"
    archive.write_bytes(archives.compressed(bytes(data), "zst"))
    with pytest.raises(IntegrityError, match="header"):
        extract(archive, tmp_path / "out")


def test_a_folder_that_exists_is_neither_used_nor_removed(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar.zst", [file("a")])
    (tmp_path / "out").mkdir()
    with pytest.raises(LocalFileError, match="exists"):
        extract(archive, tmp_path / "out")
    assert (tmp_path / "out").is_dir()


def test_a_missing_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match="missing"):
        extract(tmp_path / "missing", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a" * 256, "a/" + "\u00e9" * 128 + "/b"], ids=["letters", "two bytes each"])
def test_a_segment_longer_than_any_file_system_s_is_the_archive_s_fault(name: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar.zst", [file(name)])
    with pytest.raises(HostileArchiveError, match="a segment of more than 255 bytes") as caught:
        extract(archive, tmp_path / "out")
    assert caught.value.member == name
    assert not (tmp_path / "out").exists()


def test_a_segment_of_255_bytes_is_honest(tmp_path: Path) -> None:
    extract(write_archive(tmp_path / "a.tar.zst", [file("a" * 255)]), tmp_path / "out")
    assert (tmp_path / "out" / ("a" * 255)).is_file()


@pytest.mark.parametrize("listed", [archives.MANIFEST, f"{archives.MANIFEST}/x"])
@pytest.mark.parametrize("layout", ["flatten", "bootstrap"])
def test_a_manifest_that_lists_itself_is_refused(layout: Layout, listed: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar.zst", [manifest("math/stage", listed)])
    with pytest.raises(HostileArchiveError, match="it is the manifest itself") as caught:
        extract(archive, tmp_path / "out", layout=layout)
    assert caught.value.exit_code == 6


class CancelAfter(CancelToken):
    """Is set when it is asked for the `times`-th time."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def check(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.cancel(15)
        super().check()


@pytest.mark.parametrize("times", [1, 2, 3, 10])
def test_a_cancel_leaves_nothing(times: int, tmp_path: Path) -> None:
    archive = archives.zeros_bomb(tmp_path / "a.tar.zst", 10 << 20)
    with pytest.raises(CancelledError):
        extract(archive, tmp_path / "out", cancel=CancelAfter(times))
    assert not (tmp_path / "out").exists()


def test_a_cancel_is_asked_for_every_buffer_of_one_file(tmp_path: Path) -> None:
    archive = archives.zeros_bomb(tmp_path / "a.tar.zst", 50 << 20)
    counting = CancelAfter(1 << 30)
    extract(archive, tmp_path / "out", cancel=counting)
    assert (1 << 30) - counting._left >= (50 << 20) // _tar_stream.PIECE_BYTES


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="Linux tells what is open")
def test_all_descriptors_are_closed_again(tmp_path: Path) -> None:
    good = write_archive(tmp_path / "a.tar.zst", [file("/".join("abcdefgh") + f"/{number}") for number in range(50)])
    bad = write_archive(tmp_path / "b.tar.zst", [file("a/b/c"), hard_link("a/b/d", "a/b/e")])
    before = len(list(Path("/proc/self/fd").iterdir()))
    extract(good, tmp_path / "out")
    with pytest.raises(HostileArchiveError):
        extract(bad, tmp_path / "bad")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# Archives of the system's tar.


def _real_tree(root: Path) -> Path:
    root.mkdir()
    (root / "empty").mkdir()
    (root / "bin").mkdir()
    (root / "bin/tool").write_bytes(b"#!/bin/sh\n")
    (root / "bin/tool").chmod(0o755)
    (root / "bin/again").hardlink_to(root / "bin/tool")
    (root / "bin/link").symlink_to("tool")
    (root / "bin/up").symlink_to("../bin")
    long = root / ("n" * 120) / ("m" * 140)
    long.mkdir(parents=True)
    (long / ("f" * 200)).write_bytes(b"long")
    (root / "caf\u00e9").write_bytes(os.urandom(700_000))
    for path in root.rglob("*"):
        if not path.is_symlink() and path.is_file() and path.name not in {"tool", "again"}:
            path.chmod(0o644)
        elif path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    return root


@pytest.mark.skipif(shutil.which("tar") is None or shutil.which("zstd") is None, reason="needs GNU tar and zstd")
@pytest.mark.parametrize("tar_format", ["gnu", "pax", "posix", "oldgnu"])
@pytest.mark.parametrize("suffix", ["zst", "xz"])
def test_archives_of_gnu_tar_become_the_tree_they_were_made_of(tar_format: str, suffix: str, tmp_path: Path) -> None:
    source = _real_tree(tmp_path / "source")
    archive = archives.gnu_tar(source, tmp_path / f"a.tar.{suffix}", f"--format={tar_format}")
    extract(archive, tmp_path / "out")
    assert snapshot(tmp_path / "out") == snapshot(source)
    times = {path.name: int(path.stat().st_mtime) for path in source.rglob("*") if path.is_file()}
    assert {path.name: int(path.stat().st_mtime) for path in (tmp_path / "out").rglob("*") if path.is_file()} == times


@pytest.mark.skipif(shutil.which("tar") is None or shutil.which("zstd") is None, reason="needs GNU tar and zstd")
def test_a_sparse_file_and_a_pipe_of_gnu_tar_are_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with (tmp_path / "source/sparse").open("wb") as hole:
        hole.truncate(10 << 20)
    for sparse_version in ("0.0", "0.1", "1.0"):
        archive = archives.gnu_tar(
            tmp_path / "source",
            tmp_path / "a.tar.zst",
            "--sparse",
            "--format=pax",
            f"--sparse-version={sparse_version}",
        )
        with pytest.raises(HostileArchiveError, match="sparse"):
            extract(archive, tmp_path / "out")
    archive = archives.gnu_tar(tmp_path / "source", tmp_path / "a.tar.zst", "--sparse", "--format=gnu")
    with pytest.raises(HostileArchiveError, match="sparse"):
        extract(archive, tmp_path / "out")
    (tmp_path / "source/sparse").unlink()
    os.mkfifo(tmp_path / "source/pipe")
    with pytest.raises(HostileArchiveError, match="named pipe"):
        extract(archives.gnu_tar(tmp_path / "source", tmp_path / "b.tar.zst"), tmp_path / "out")


@pytest.mark.skipif(shutil.which("tar") is None or shutil.which("zstd") is None, reason="needs GNU tar and zstd")
def test_what_is_extracted_is_what_gnu_tar_extracts(tmp_path: Path) -> None:
    entries = [replace(entry, mode=0o755 if entry.mode & 0o100 else 0o644) for entry in HONEST]
    archive = write_archive(tmp_path / "a.tar.zst", entries)
    (tmp_path / "theirs").mkdir()
    subprocess.run(["tar", "--extract", f"--file={archive}", f"--directory={tmp_path / 'theirs'}"], check=True)
    extract(archive, tmp_path / "ours")
    assert snapshot(tmp_path / "ours") == snapshot(tmp_path / "theirs")


# Anything at all.

SEGMENTS = st.sampled_from(["a", "b", "c", ".", "..", "", "\\", "C:", "\udcff", "x" * 101, "canary"])
NAMES = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)
CONTENTS = st.binary(max_size=600)
ENTRIES = st.one_of(
    st.builds(file, NAMES, CONTENTS, mode=st.sampled_from([0o644, 0o755, 0o4755])),
    st.builds(folder, NAMES),
    st.builds(symbolic_link, NAMES, NAMES),
    st.builds(hard_link, NAMES, NAMES),
)
TAME_FILES = st.sampled_from(["f", "a/f", "./a/g", "a/b/f", "b//f", "d/e/f"])
TAME_ENTRIES = st.one_of(
    st.builds(file, TAME_FILES, CONTENTS, mode=st.sampled_from([0o644, 0o755])),
    st.builds(folder, st.sampled_from(["a", "a/b", "c", "./d/"])),
    st.builds(symbolic_link, st.sampled_from(["a/l", "a/b/l", "d/e/l"]), st.sampled_from(["f", "./a", "../a", "l/x"])),
)
HARD_LINKS = st.builds(hard_link, st.sampled_from(["h", "a/h", "c/h"]), TAME_FILES)
TAME_LISTS = st.builds(
    list.__add__,
    st.lists(TAME_ENTRIES, max_size=8, unique_by=lambda entry: entry.name),
    st.lists(HARD_LINKS, max_size=1),
)


class Model:
    """What an honest list of members must become; None where it is not honest."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.tree: dict[str, tuple[object, ...]] | None = {}
        for entry in entries:
            if self.tree is not None and not self._add(self.tree, entry):
                self.tree = None
        if self.tree is not None:
            self._name_the_first(self.tree)

    @staticmethod
    def _path(name: str) -> str:
        return "/".join(segment for segment in name.split("/") if segment not in {"", "."})

    def _add(self, tree: dict[str, tuple[object, ...]], entry: Entry) -> bool:
        is_folder = entry.type == tarfile.DIRTYPE
        name = entry.name.rstrip("/") if is_folder else entry.name
        path = self._path(name)
        is_bad = not name or name.startswith("/") or path.startswith("C:") or not (path or is_folder)
        if is_bad or {"..", "\\", "\udcff"} & set(name.split("/")) or entry.mode & 0o7000:
            return False
        steps = path.split("/")
        ways = ["/".join(steps[:end]) for end in range(1, len(steps) + is_folder) if path]
        if any(tree.setdefault(way, ("folder", 0o755))[0] != "folder" for way in ways):
            return False
        return is_folder or (path not in tree and self._put(tree, path, entry))

    def _put(self, tree: dict[str, tuple[object, ...]], path: str, entry: Entry) -> bool:
        target = entry.target
        if entry.type == tarfile.SYMTYPE:
            tree[path] = ("link", target)
            return self._is_inside(path, target)
        if entry.type == tarfile.LNKTYPE:
            source = tree.get(self._path(target), ("none",))
            tree[path] = source
            return bool(target) and not target.startswith("/") and ".." not in target.split("/") and source[0] == "file"
        tree[path] = ("file", entry.content, 0o755 if entry.mode & 0o100 else 0o644, object())
        return True

    @staticmethod
    def _is_inside(path: str, target: str) -> bool:
        steps = [step for step in target.split("/") if step not in {"", "."}]
        climbs = 0
        while climbs < len(steps) and steps[climbs] == "..":
            climbs += 1
        return (
            bool(target)
            and not target.startswith(("/", "C:"))
            and climbs <= path.count("/")
            and not {"..", "\\", "\udcff"} & set(steps[climbs:])
        )

    @staticmethod
    def _name_the_first(tree: dict[str, tuple[object, ...]]) -> None:
        first: dict[object, str] = {}
        for path in sorted(tree, key=lambda path: path.split("/")):
            if tree[path][0] == "file":
                tree[path] = (*tree[path][:3], first.setdefault(tree[path][3], path))


@settings(max_examples=200)
@given(
    entries=st.one_of(st.lists(ENTRIES, max_size=6), TAME_LISTS),
    tar_format=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
def test_any_members_become_the_honest_tree_or_nothing_and_never_leave_the_folder(
    entries: list[Entry], tar_format: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("any")
    cage = Cage(root / "cage")
    archive = write_archive(root / "a.tar.zst", entries, tar_format=tar_format)
    expected = Model(entries).tree
    try:
        extract(archive, cage.folder)
    except HostileArchiveError:
        assert expected is None
        assert not cage.folder.exists()
    else:
        assert snapshot(cage.folder) == expected
    cage.check()
    shutil.rmtree(root)


@settings(max_examples=200)
@given(
    data=st.one_of(st.binary(max_size=2000), st.just(archives.tar_bytes([*HONEST[:2], *HONEST[3:5]]))),
    changes=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=5),
    fix_checksums=st.booleans(),
)
def test_any_bytes_in_a_tar_are_refused_with_our_error_or_extracted(
    data: bytes,
    changes: list[tuple[int, int]],
    fix_checksums: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    changed = bytearray(data)
    for at, value in changes:
        if at < len(changed):
            changed[at] = value
            start = at - at % 512
            if fix_checksums and len(changed) >= start + 512:
                changed[start + 148 : start + 156] = b"        "
                changed[start + 148 : start + 156] = b"%06o\0 " % sum(changed[start : start + 512])
    root = tmp_path_factory.mktemp("bytes")
    cage = Cage(root / "cage")
    (root / "a").write_bytes(archives.compressed(bytes(changed), "zst"))
    try:
        extract(root / "a", cage.folder)
    except (IntegrityError, LocalFileError):
        assert not cage.folder.exists()
    cage.check()
    shutil.rmtree(root)


def test_what_was_read_last_can_be_read_again_and_an_early_end_is_damage(tmp_path: Path) -> None:
    stream = _tar_stream.TarStream(tmp_path, iter([b"ab", b"cd", b"ef"]))
    assert (stream.read(1), stream.read(2), stream.tell()) == (b"a", b"bc", 3)
    stream.push_back(b"bc")
    assert (stream.tell(), stream.read(4)) == (1, b"bcde")
    with pytest.raises(IntegrityError, match="no end mark"):
        stream.read(2)
