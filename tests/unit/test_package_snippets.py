"""The lines that install packages: a shell and apt's or dnf's configuration get just what was meant."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from therock_outputs.package_snippets import install_snippet


def told(*lines: str, folder: Path) -> str:
    """What a shell that runs the lines in `folder` would hand on to sudo."""
    script = "\n".join(("sudo() { cat; }", *lines))
    return subprocess.run(["sh", "-c", script], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("package_type", ["deb", "rpm"])
def test_the_address_reaches_the_configuration_as_it_is(tmp_path: Path, package_type: str) -> None:
    url = "https://b.s3.amazonaws.com/a%2Bb%27%24%28c/1-linux/packages"
    snippet = install_snippet("deb" if package_type == "deb" else "rpm", ["rocm"], url=url)
    lines = snippet.lines[:1] if package_type == "deb" else snippet.lines[:-1]
    expected = f"deb [trusted=yes] {url} stable main\n" if package_type == "deb" else f"baseurl={url}\n"
    assert expected in told(*lines, folder=tmp_path)
    assert snippet.lines[-1].endswith("install rocm")


@pytest.mark.parametrize("package_type", ["deb", "rpm"])
def test_a_folder_is_percent_encoded(tmp_path: Path, package_type: str) -> None:
    folder = Path("/tmp/a b+c$(d)\"'`e/\u00e9#?%")
    snippet = install_snippet("deb" if package_type == "deb" else "rpm", ["rocm"], folder=folder)
    lines = snippet.lines[:1] if package_type == "deb" else snippet.lines[:-1]
    assert "file:///tmp/a%20b%2Bc%24%28d%29%22%27%60e/%C3%A9%23%3F%25" in told(*lines, folder=tmp_path)


@pytest.mark.parametrize("package_type", ["deb", "rpm"])
def test_below_the_current_folder_that_is_looked_up_by_the_shell(tmp_path: Path, package_type: str) -> None:
    current = tmp_path / "a b % c"
    current.mkdir()
    below = PurePosixPath("s t/packages")
    snippet = install_snippet("deb" if package_type == "deb" else "rpm", ["rocm"], below_current=below)
    lines = snippet.lines[:1] if package_type == "deb" else snippet.lines[:-1]
    assert f"file://{tmp_path}/a%20b%20%25%20c/s%20t/packages" in told(*lines, folder=current)


@pytest.mark.parametrize(
    ("path", "is_misread"), [("/a%2Bb", True), ("/a%25", True), ("/a%", False), ("/a%zz", False), ("/100% sure", False)]
)
def test_a_folder_that_apt_misreads_is_said_to_be_of_no_use_to_it(path: str, *, is_misread: bool) -> None:
    """apt decodes what it decoded once more: `%2B` in a path is a plus sign to it."""
    for place in ({"folder": Path(path)}, {"below_current": PurePosixPath(path[1:])}):
        (first, *_) = install_snippet("deb", ["rocm"], **place).lines  # type: ignore[arg-type]  # one of the two
        assert first.startswith("# apt cannot use this repository where it is") == is_misread
        assert install_snippet("rpm", ["rocm"], **place).lines[0].startswith("sudo tee")  # type: ignore[arg-type]  # as above


def test_names_are_quoted_and_many_are_counted() -> None:
    names = ["a;b", *(f"p{number}" for number in range(24))]
    *_, install, more = install_snippet("deb", names, url="https://x").lines
    assert install.startswith("sudo apt-get install 'a;b' p0")
    assert (install.split()[-1], more) == ("p18", "# and 5 more packages")
