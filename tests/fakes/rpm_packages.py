"""Makes rpm packages with rpmbuild, and repositories with createrepo_c's own programs; a server to read them from."""

from __future__ import annotations

import http.server
import os
import shutil
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BUILD_SECONDS = 1_767_600_000
LEAD_BYTES = 96
_ENTRY = struct.Struct(">IIII")
_INTRO = struct.Struct(">4s4xII")


def build_rpm(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    release: str = "1",
    epoch: str = "",
    arch: str = "noarch",
    contents: Mapping[str, str] | None = None,
    header: str = "",
    sections: str = "",
    built: int = BUILD_SECONDS,
) -> Path:
    """Build `{name}-{version}-{release}.{arch}.rpm` into `folder`: the same arguments give the same bytes.

    `contents` are texts by absolute path; `header` and `sections` are further lines of the spec file.
    """
    work = folder / f".rpmbuild-{name}"
    files = {f"/opt/{name}/file": "content\n"} if contents is None else dict(contents)
    install = [
        f"mkdir -p '%{{buildroot}}{os.path.dirname(path)}'\nprintf '%%s' '{text}' > '%{{buildroot}}{path}'"  # noqa: PTH120 - of the target
        for path, text in files.items()
    ]
    lines = [
        f"Name: {name}\nVersion: {version}\nRelease: {release}\nSummary: Test package {name}\nLicense: MIT",
        f"Epoch: {epoch}" if epoch else "",
        "BuildArch: noarch" if arch == "noarch" else "",
        header,
        f"%description\nFor tests.\n%install\nmkdir -p %{{buildroot}}\n{chr(10).join(install)}\n%files",
        *(f'"{path}"' for path in files),
        sections,
    ]
    work.mkdir()
    spec = work / "package.spec"
    spec.write_text("\n".join(lines) + "\n", "utf-8")
    defines = {
        "_topdir": work,
        "_rpmdir": folder,
        "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
        "_buildhost": "builder.invalid",
        "use_source_date_epoch_as_buildtime": 1,
        "clamp_mtime_to_source_date_epoch": 1,
        "_build_id_links": "none",
        "__os_install_post": "%{nil}",
    }
    command = ["rpmbuild", "-bb", "--quiet", f"--target={arch}", str(spec)]
    command += [f"--define={key} {value}" for key, value in defines.items()]
    environment = {**os.environ, "HOME": str(work), "SOURCE_DATE_EPOCH": str(built), "LC_ALL": "C.UTF-8"}
    made = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    shutil.rmtree(work)
    return folder / f"{name}-{version}-{release}.{arch}.rpm"


def full_rpm(folder: Path) -> Path:
    """A package that has all that metadata can say: `rocm-core`, epoch 1, with every kind of dependency."""
    return build_rpm(
        folder,
        "rocm-core",
        "7.1.0~rc1+git^2",
        release="3",
        epoch="1",
        arch="x86_64",
        contents={"/opt/rocm/bin/tool": "tool", "/opt/rocm/share/a & <b>": "data", "/etc/rocm.conf": "x"},
        header="""
URL: https://example.invalid/?a=1&b=<2>
Vendor: Tests & Co
Requires: bash >= 5
Requires(pre): /bin/sh
Recommends: recommended
Suggests: suggested
Supplements: supplemented
Enhances: enhanced
Conflicts: conflicting < 2
Obsoletes: obsoleted < 3
Provides: virtual = 2:1.0-1
""",
        sections="""
%ghost /opt/rocm/ghost
%dir /opt/rocm
%changelog
* Mon Jan 05 2026 A B <a@example.invalid> - 7.1
- second & <last>
* Sun Jan 04 2026 A B <a@example.invalid> - 7.0
- first
""",
    )


def program(name: str, *arguments: str | Path) -> None:
    """Run one of createrepo_c's own programs: createrepo_c, mergerepo_c, modifyrepo_c."""
    code = f"import sys, createrepo_c; sys.argv[0] = {name!r}; createrepo_c.{name}()"
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True, capture_output=True)


def header_span(rpm: bytes) -> tuple[int, int]:
    """Start and end of the main header, between the signature header and the payload."""
    start = _header_end(rpm, LEAD_BYTES)
    start += -start % 8
    return start, _header_end(rpm, start)


def _header_end(rpm: bytes, start: int) -> int:
    _, entries, data_bytes = _INTRO.unpack_from(rpm, start)
    return start + _INTRO.size + entries * _ENTRY.size + data_bytes


def make_header(entries: Mapping[int, tuple[int, bytes, int]]) -> bytes:
    """A header of `entries`: type, data and count by tag."""
    index, data = b"", b""
    for tag, (kind, value, count) in entries.items():
        index += _ENTRY.pack(tag, kind, len(data), count)
        data += value
    return _INTRO.pack(b"\x8e\xad\xe8\x01", len(entries), len(data)) + index + data


def with_signature(rpm: bytes, entries: Mapping[int, tuple[int, bytes, int]]) -> bytes:
    """`rpm` with another signature header."""
    signature = make_header(entries)
    padding = bytes(-len(signature) % 8)
    return rpm[:LEAD_BYTES] + signature + padding + rpm[header_span(rpm)[0] :]


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files; `+` is a space where the server is to be like S3. Notes what was asked for."""

    def __init__(
        self, *arguments: object, root: Path, plus_is_space: bool, asked: list[str], **options: object
    ) -> None:
        self._root, self._plus_is_space, self._asked = root, plus_is_space, asked
        super().__init__(*arguments, **options)  # type: ignore[arg-type] # as the base class takes them

    def translate_path(self, path: str) -> str:
        path = path.partition("?")[0]
        self._asked.append(path)
        return str(self._root / unquote(path.replace("+", " ") if self._plus_is_space else path).lstrip("/"))

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@contextmanager
def file_server(root: Path, *, plus_is_space: bool = False) -> Iterator[tuple[str, list[str]]]:
    """URL of a server of the files below `root`, without a slash, and the paths that were asked of it, as they came."""
    asked: list[str] = []
    handler = partial(_Handler, root=root, plus_is_space=plus_is_space, asked=asked)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
