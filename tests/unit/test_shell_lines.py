"""Command lines from a summary do what they say when they are run, whatever the names in them are."""

from __future__ import annotations

import io
import shlex
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from therock_outputs.shell_lines import download_line, language, quoted, unpack_lines

if TYPE_CHECKING:
    from pathlib import Path


@given(st.text())
def test_a_posix_shell_reads_a_quoted_text_as_one_argument(text: str) -> None:
    assert shlex.split(quoted(text, "linux")) == [text]


@given(st.text())
def test_for_cmd_a_text_is_always_in_double_quotes_and_none_of_its_own_ends_them(text: str) -> None:
    argument = quoted(text, "windows")
    assert argument.startswith('"')
    assert argument.endswith('"')
    assert argument[1:-1].replace('""', "").count('"') == 0
    assert argument[1:-1].replace('""', '"') == text


def test_a_download_names_its_file_because_the_url_is_percent_encoded() -> None:
    url = "https://b.s3.amazonaws.com/1-linux/tarballs/a%2Bb.tar.gz"
    assert download_line(url, "a+b.tar.gz", "linux") == f"curl -fL -o a+b.tar.gz {url}"
    assert download_line(url, "a+b.tar.gz", "windows") == f'curl.exe -fL -o "a+b.tar.gz" "{url}"'


@pytest.mark.parametrize("name", ["a+b.tar.gz", "it's $(touch x) & more.tar.gz"])
def test_the_lines_for_linux_unpack_into_the_folder(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / name, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("bin/tool"), io.BytesIO())
    script = "\n".join(unpack_lines(name, "the folder", "linux"))
    for _ in range(2):  # a second time, too
        subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "the folder"])
    assert (tmp_path / "the folder" / "bin" / "tool").is_file()


def test_the_lines_for_windows_are_cmds() -> None:
    assert unpack_lines("out\\a.tar.gz", "f", "windows") == ('mkdir "f"', 'tar -xzf "out\\a.tar.gz" -C "f"')
    assert (language("windows"), language("linux")) == ("bat", "sh")
