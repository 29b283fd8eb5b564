"""A sidecar is read as `sha256sum` and TheRock write it, and trusted for its own file only."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._errors import IllegalLocationError, InputError
from _therock_utils._keys import segment_fault
from _therock_utils._sidecar import MAX_SIDECAR_BYTES, parse_sidecar, render_sidecar, sidecar_name

if TYPE_CHECKING:
    from pathlib import Path

NAME = "blas_lib_gfx942.tar.zst"
DIGEST = hashlib.sha256(b"archive").hexdigest()
DIGESTS = st.binary(max_size=4).map(lambda data: hashlib.sha256(data).hexdigest())
FILE_NAMES = st.text(min_size=1, max_size=20).filter(lambda name: not segment_fault(name))


def test_a_sidecar_lies_beside_its_archive() -> None:
    assert sidecar_name(NAME) == f"{NAME}.sha256sum"


@given(DIGESTS, FILE_NAMES)
def test_what_is_written_is_read_back_for_its_own_file(digest: str, name: str) -> None:
    data = render_sidecar(digest, name)
    assert parse_sidecar(data) == digest
    assert parse_sidecar(data, name=name) == digest


@pytest.mark.parametrize("name", [" a", "a ", "\u3000a", "*a", " *a", "*", " ", "a b", "C:a"])
def test_odd_names_are_read_back_too(name: str) -> None:
    assert parse_sidecar(render_sidecar(DIGEST, name), name=name) == DIGEST


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
@pytest.mark.parametrize("options", [[], ["--binary"], ["--text"]])
def test_what_sha256sum_writes_is_read_and_what_is_written_sha256sum_accepts(
    tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / NAME).write_bytes(b"archive")
    written = subprocess.run(["sha256sum", *options, NAME], cwd=tmp_path, capture_output=True, check=True).stdout
    assert parse_sidecar(written, name=NAME) == DIGEST
    (tmp_path / sidecar_name(NAME)).write_bytes(render_sidecar(DIGEST, NAME))
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", sidecar_name(NAME)], cwd=tmp_path, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    "text",
    [
        DIGEST,
        f"{DIGEST}\n",
        f"{DIGEST}\r\n",
        f"{DIGEST.upper()}\n",
        f"{DIGEST}  {NAME}\n",
        f"{DIGEST}  {NAME}\r\n",
        f"{DIGEST} {NAME}",
        f"{DIGEST}\t{NAME}\n\n",
        f"{DIGEST} *{NAME}\n",
        f"{DIGEST}  ./{NAME}\n",
        f"{DIGEST} *build/artifacts/{NAME}\n",
        f"{DIGEST}  B:\\build\\artifacts\\{NAME}\r\n",
        f"{DIGEST}  \n",
    ],
)
def test_every_form_in_use_is_read(text: str) -> None:
    assert parse_sidecar(text.encode(), name=NAME) == DIGEST


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        DIGEST[:-1].encode(),
        f"{DIGEST}0".encode(),
        f"{DIGEST}{NAME}".encode(),
        f" {DIGEST}".encode(),
        f"g{DIGEST[1:]}".encode(),
        f"{DIGEST}\n{DIGEST}\n".encode(),
        f"{DIGEST}  {NAME}\n{'0' * 64}  {NAME}\n".encode(),
        f"{DIGEST}\n  {NAME}".encode(),
        f"SHA256 ({NAME}) = {DIGEST}".encode(),
        DIGEST.encode("utf-16"),
        b"\xff\xfe",
        f"{DIGEST}  ".encode() + b"\xff",
        b"<html>not found</html>",
        "\N{FULLWIDTH DIGIT ONE}".encode() + DIGEST[1:].encode(),
        DIGEST.encode() + b" " * MAX_SIDECAR_BYTES,
    ],
)
def test_anything_else_holds_no_digest(data: bytes) -> None:
    assert parse_sidecar(data) == ""
    assert parse_sidecar(data, name=NAME) == ""


@pytest.mark.parametrize("other", ["rand_lib_gfx942.tar.zst", f"{NAME}.old", f"x{NAME}", f"{NAME}/", f"**{NAME}"])
def test_a_sidecar_of_another_file_is_not_trusted(other: str) -> None:
    assert parse_sidecar(f"{DIGEST}  {other}\n".encode(), name=NAME) == ""
    assert parse_sidecar(f"{DIGEST}  {other}\n".encode()) == DIGEST


def test_the_longest_sidecar_that_is_read_is_read_whole() -> None:
    data = DIGEST.encode() + b"\n" * (MAX_SIDECAR_BYTES - len(DIGEST))
    assert parse_sidecar(data) == DIGEST


@given(
    st.binary(max_size=100) | st.text(max_size=80).map(lambda text: f"{DIGEST}{text}".encode(errors="surrogatepass"))
)
def test_no_bytes_are_a_failure(data: bytes) -> None:
    assert parse_sidecar(data, name=NAME) in {"", DIGEST}


@pytest.mark.parametrize("digest", ["", DIGEST.upper(), DIGEST[:-1], f"{DIGEST}\n", "\N{ARABIC-INDIC DIGIT ONE}" * 64])
def test_only_a_digest_is_written(digest: str) -> None:
    with pytest.raises(InputError, match="digest"):
        render_sidecar(digest, NAME)


@pytest.mark.parametrize("name", ["", "a/b", "a\n", "a\\b"])
def test_a_name_that_would_be_read_as_another_is_not_written(name: str) -> None:
    with pytest.raises(IllegalLocationError, match="file name"):
        render_sidecar(DIGEST, name)
