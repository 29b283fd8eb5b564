"""Small real wheels and sdists, made of nothing but their specifications: pip installs them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TIME = (2026, 1, 1, 0, 0, 0)
_PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def metadata(
    name: str, version: str, *, requires: tuple[str, ...] = (), requires_python: str = "", extras: tuple[str, ...] = ()
) -> bytes:
    """Core metadata."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    return ("\n".join(lines) + "\n\nA package for tests.\n").encode()


def module_of(name: str) -> str:
    """The module that a package brings; its VALUE is the package's version."""
    return re.sub(r"\W", "_", name)


def wheel_files(name: str, version: str, data: bytes) -> dict[str, bytes]:
    """The files of a pure wheel whose METADATA is `data`, with its RECORD."""
    info = f"{_escaped(name)}-{version}.dist-info"
    files = {
        f"{module_of(name)}.py": f"VALUE = {version!r}\n".encode(),
        f"{info}/METADATA": data,
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in files.items()]
    return files | {f"{info}/RECORD": ("\n".join([*lines, f"{info}/RECORD,,"]) + "\n").encode()}


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file of these, always the same bytes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, _TIME), content, method)
    return target.getvalue()


def make_wheel(folder: Path, name: str, version: str = "1.0", *, tag: str = "py3-none-any", **said: object) -> Path:
    """Write a wheel; `said` as `metadata` takes it. Returns its path."""
    data = metadata(name, version, **said)  # type: ignore[arg-type]  # passed on
    path = folder / f"{_escaped(name)}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zipped(wheel_files(name, version, data)))
    return path


def tarred(files: Mapping[str, bytes]) -> bytes:
    """A .tar.gz of these, always the same bytes."""
    target = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=target, mode="wb", mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def make_sdist(folder: Path, name: str, version: str = "1.0", **said: object) -> Path:
    """Write an sdist that pip builds without any other package: it brings its own backend. Returns its path."""
    data = metadata(name, version, **said)  # type: ignore[arg-type]  # passed on
    root = f"{_escaped(name)}-{version}"
    wheel_name = f"{root}-py3-none-any.whl"
    wheel = base64.b64encode(zipped(wheel_files(name, version, data))).decode()
    backend = (
        "import base64, pathlib\n"
        f"WHEEL = base64.b64decode({wheel!r})\n"
        "def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):\n"
        f"    pathlib.Path(wheel_directory, {wheel_name!r}).write_bytes(WHEEL)\n"
        f"    return {wheel_name!r}\n"
    )
    files = {"PKG-INFO": data, "pyproject.toml": _PYPROJECT.encode(), "backend.py": backend.encode()}
    path = folder / f"{root}.tar.gz"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tarred({f"{root}/{file}": content for file, content in files.items()}))
    return path


def _escaped(name: str) -> str:
    return re.sub(r"[-.]+", "_", name)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
