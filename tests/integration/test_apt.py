"""A repository that the mode wrote, used by apt in the image: from an HTTP server, as it is on S3."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.contexts import STAGED, make_context
from fakes.deb_packages import build_deb
from fakes.runner import PROJECT
from therock_outputs.mode_names import Mode
from therock_outputs.modes.upload_packages import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from therock_outputs.report import Report

pytestmark = [pytest.mark.needs("image", "dpkg-deb"), pytest.mark.slow]

_ENGINE = (str(PROJECT / ".ci" / "image"), "engine")
_REPOSITORY = "100-linux/packages/deb"


@dataclass
class Server:
    """Serves a staging folder; `paths` are those that were asked for, as they were sent, with the answers' statuses."""

    url: str = ""
    paths: list[tuple[str, int]] = field(default_factory=list)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    served = Server()

    class Handler(SimpleHTTPRequestHandler):
        def send_head(self) -> object:
            # S3 reads a plus sign as a space, and says 403 of what is missing to those who may not list.
            if "+" in self.path or not Path(self.translate_path(self.path)).exists():
                self.send_error(403)
                return None
            return super().send_head()

        def log_request(self, code: object = "-", size: object = "-") -> None:
            served.paths.append((self.path, int(str(getattr(code, "value", code)))))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            """Say nothing."""

    folder = tmp_path / STAGED
    folder.mkdir()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{httpd.server_port}/{_REPOSITORY}"
    try:
        yield served
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def upload(workspace: Path, **inputs: object) -> Report:
    report = run(make_context(workspace, Mode.UPLOAD_PACKAGES, path="packages", package_type="deb", **inputs))
    assert report.error is None, report.error
    return report


def in_image(url: str, *lines: str, options: str = "") -> str:
    """What a shell in the image prints that knows this one repository only; it fails with the output where a line does.

    The line that configures apt is the one that the summary tells people to use.
    """
    apt = (
        "apt() { apt-get -q -o Dir::Etc::sourcelist=/tmp/rocm.list -o Dir::Etc::sourceparts=- "
        f'-o APT::Sandbox::User=root -o Acquire::Languages=none {options} "$@"; }}'
    )
    script = "\n".join(("set -eu", f'echo "deb [trusted=yes] {url} stable main" > /tmp/rocm.list', apt, *lines))
    command = [*_ENGINE, "run", "--rm", "--network", "host", "--entrypoint", "/bin/sh"]
    done = subprocess.run(
        [*command, os.environ["THEROCK_OUTPUTS_IMAGE"], "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def build_all(folder: Path) -> None:
    """Packages whose versions have all that versions may have; one is for all architectures, one for another."""
    build_deb(folder, "rocm-plus", "1:7.1.0~rc2+git20261201.abc-1~24.04", compression="zstd", content="plus\n")
    build_deb(folder, "rocm-core", "7.1.0", compression="xz", extra="Depends: rocm-data (>= 2:1.0~)\n")
    build_deb(folder, "rocm-data", "2:1.0+b", architecture="all", file_name="rocm-data_2%3a1.0+b_all.deb")
    build_deb(folder, "rocm-other", "7.1.0", architecture="arm64")


def test_apt_installs_versions_with_plus_tilde_and_epoch_and_what_they_depend_on(
    tmp_path: Path, server: Server
) -> None:
    build_all(tmp_path / "packages")
    upload(tmp_path)
    told = in_image(
        server.url,
        "apt update",
        "apt install --yes rocm-plus rocm-core",
        "cat /opt/rocm-test/rocm-plus",
        "dpkg-query --show --showformat='${Package}=${Version}\\n' rocm-plus rocm-core rocm-data",
        "apt-cache -o Dir::Etc::sourcelist=/tmp/rocm.list -o Dir::Etc::sourceparts=- policy rocm-plus",
    )
    assert "\nplus\n" in told
    for package in ("rocm-plus=1:7.1.0~rc2+git20261201.abc-1~24.04", "rocm-core=7.1.0", "rocm-data=2:1.0+b"):
        assert f"{package}\n" in told
    assert f"500 {server.url} stable/main amd64 Packages" in told
    by_hash = [path for path, status in server.paths if "/by-hash/SHA256/" in path and status == 200]
    assert by_hash
    assert not [path for path, _ in server.paths if path.endswith(("/Packages", "/Packages.gz"))]
    assert not [path for path, _ in server.paths if "+" in path]


def test_apt_finds_the_plain_names_where_it_does_not_use_hashes(tmp_path: Path, server: Server) -> None:
    build_all(tmp_path / "packages")
    upload(tmp_path)
    told = in_image(server.url, "apt update", "apt install --yes rocm-core", options="-o Acquire::By-Hash=no")
    assert "Setting up rocm-core (7.1.0)" in told
    assert [path for path, status in server.paths if path.endswith("/Packages.gz") and status == 200]
    assert not [path for path, _ in server.paths if "/by-hash/" in path]


def test_apt_that_read_an_older_release_file_still_gets_its_packages(tmp_path: Path, server: Server) -> None:
    """Between its `update` and its `install` another job published, with other bytes for the same package."""
    build_deb(tmp_path / "packages", "rocm-core", "7.1.0", content="first\n")
    upload(tmp_path)
    first = (tmp_path / STAGED / _REPOSITORY / "dists" / "stable" / "Release").read_bytes()
    build_deb(tmp_path / "packages", "rocm-core", "7.1.0", content="second\n")
    report = upload(tmp_path)
    assert "the repository now offers rocm-core_7.1.0_amd64." in report.warnings[0]
    told = in_image(server.url, "apt update", "apt install --yes rocm-core", "cat /opt/rocm-test/rocm-core")
    assert "\nsecond\n" in told
    (tmp_path / STAGED / _REPOSITORY / "dists" / "stable" / "Release").write_bytes(first)
    told = in_image(server.url, "apt update", "apt install --yes rocm-core", "cat /opt/rocm-test/rocm-core")
    assert "\nfirst\n" in told


def test_apt_refuses_a_package_whose_bytes_were_replaced(tmp_path: Path, server: Server) -> None:
    path = build_deb(tmp_path / "packages", "rocm-core", "7.1.0")
    upload(tmp_path)
    stored = tmp_path / STAGED / _REPOSITORY / "pool" / "main" / path.name
    data = bytearray(stored.read_bytes())
    data[-20] ^= 1
    stored.write_bytes(data)
    with pytest.raises(AssertionError, match="Hash Sum mismatch"):
        in_image(server.url, "apt update", "apt install --yes rocm-core")


def test_apt_installs_from_a_repository_whose_metadata_were_lost_and_made_again(tmp_path: Path, server: Server) -> None:
    build_all(tmp_path / "packages")
    upload(tmp_path)
    for path in sorted((tmp_path / STAGED / _REPOSITORY / "dists").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for path in (tmp_path / "packages").iterdir():
        path.unlink()
    build_deb(tmp_path / "packages", "rocm-new", "1.0")
    upload(tmp_path)
    told = in_image(server.url, "apt update", "apt install --yes rocm-new rocm-plus rocm-core")
    assert "Setting up rocm-plus (1:7.1.0~rc2+git20261201.abc-1~24.04)" in told
