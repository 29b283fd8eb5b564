"""A file name alone decides the content type, the same on every machine."""

from __future__ import annotations

import json
import mimetypes
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils.content_types import infer_content_type

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "content_types.json").read_text(encoding="utf-8"))[
    "cases"
]


def type_of(name: str) -> str:
    return infer_content_type(name).partition(";")[0]


@pytest.mark.parametrize(("name", "expected"), VECTORS.items())
def test_the_recorded_cases_hold(name: str, expected: str) -> None:
    assert type_of(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("build.log.12", "text/plain"),
        ("rocBLAS_build.LOG", "text/plain"),
        (".ninja_log", "text/plain"),
        ("fix.patch", "text/plain"),
        ("toolchain.cmake", "text/plain"),
        ("events.jsonl", "text/plain"),
        ("app.js", "text/javascript"),
        ("app.js.map", "application/json"),
        ("style.css", "text/css"),
        ("a.whl.metadata", "text/plain"),
        ("Packages.gz", "application/gzip"),
        ("primary.xml.gz", "application/gzip"),
        ("Release.gpg", "application/pgp-signature"),
        ("rocm.gpg", "application/pgp-keys"),
        ("rocm.asc", "text/plain"),
        ("sdist.tgz", "application/gzip"),
        ("a.tar.bz2", "application/x-bzip2"),
        ("a.tar", "application/x-tar"),
        ("x.src.rpm", "application/x-rpm"),
        ("report.pdf", "application/pdf"),
        ("m.wasm", "application/wasm"),
        ("favicon.ico", "image/vnd.microsoft.icon"),
        ("p.jpg", "image/jpeg"),
        ("p.webp", "image/webp"),
        ("libamdhip64.so.7", "application/octet-stream"),
        ("a.out", "application/octet-stream"),
        ("packages", "application/octet-stream"),
        ("x.log.old", "application/octet-stream"),
        ("log", "application/octet-stream"),
        ("name.", "application/octet-stream"),
        ("", "application/octet-stream"),
    ],
)
def test_what_a_build_uploads_is_known(name: str, expected: str) -> None:
    assert type_of(name) == expected


def test_only_the_last_segment_counts() -> None:
    assert type_of("logs.html/build") == "application/octet-stream"
    assert type_of("12345-linux/logs/x.json/build.log") == "text/plain"
    assert infer_content_type(Path("dists") / "stable" / "Release") == infer_content_type("dists/stable/Release")


def test_text_says_that_it_is_utf8_and_nothing_else_does() -> None:
    assert infer_content_type("a.log") == "text/plain; charset=utf-8"
    assert infer_content_type("index.html") == "text/html; charset=utf-8"
    assert infer_content_type("a.json") == "application/json"
    assert infer_content_type("a.tar.zst") == "application/zstd"


def test_the_machines_own_tables_play_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mimetypes, "types_map", {".log": "application/x-made-up", ".zzz": "application/x-made-up"})
    mimetypes.add_type("application/x-made-up", ".zzz")
    assert type_of("a.log") == "text/plain"
    assert type_of("a.zzz") == "application/octet-stream"


@given(st.text())
def test_every_name_has_a_type_that_can_stand_in_a_header(name: str) -> None:
    content_type = infer_content_type(name)
    assert content_type.isascii()
    assert content_type.isprintable()
    assert PurePosixPath(content_type.partition(";")[0]).parent.name in {"application", "text", "image", "font"}
