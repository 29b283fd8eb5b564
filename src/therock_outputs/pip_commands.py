"""The pip command that installs what was stored, for a person to copy. Pure."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from therock_outputs.report import Snippet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from therock_outputs.python_packages import PackageMetadata, PackageName

_MAIN_PROJECT: Final = "rocm"
_MAIN_EXTRAS: Final = ("libraries", "devel")
_SHOWN_PROJECTS: Final = 3
_SAFE_FOR_CMD: Final = re.compile(r"[\w@+=:,./\\-]+", re.ASCII)


def requirements_of(packages: Iterable[tuple[PackageName, PackageMetadata]]) -> tuple[str, ...]:
    """What to install: rocm with its usual extras where it is among them, else the first few projects; pinned."""
    from packaging.version import Version

    newest: dict[str, tuple[Version, PackageMetadata]] = {}
    for name, metadata in packages:
        version = Version(name.version)
        if name.project not in newest or newest[name.project][0] < version:
            newest[name.project] = (version, metadata)
    projects = [_MAIN_PROJECT] if _MAIN_PROJECT in newest else sorted(newest)[:_SHOWN_PROJECTS]
    return tuple(_requirement(project, newest) for project in projects)


def pip_snippet(title: str, *, platform: str, find_links: str, requirements: Iterable[str]) -> Snippet:
    """The command for the shell of `platform`: cmd's for windows, else sh's. `find_links` is a URL or a local path."""
    arguments = [f"--find-links {_quoted(find_links, platform)}", *(_quoted(item, platform) for item in requirements)]
    continued = " ^" if platform == "windows" else " \\"
    lines = ["python -m pip install", *(f"    {argument}" for argument in arguments)]
    return Snippet(
        title,
        "bat" if platform == "windows" else "sh",
        (*(line + continued for line in lines[:-1]), lines[-1]),
    )


def _requirement(project: str, newest: Mapping[str, tuple[object, PackageMetadata]]) -> str:
    version, metadata = newest[project]
    extras = [extra for extra in _MAIN_EXTRAS if project == _MAIN_PROJECT and extra in metadata.extras]
    return f"{project}[{','.join(extras)}]=={version}" if extras else f"{project}=={version}"


def _quoted(text: str, platform: str) -> str:
    """`text` as one argument. Nothing that cmd would expand inside quotes is left in: no file name may have a quote."""
    if platform != "windows":
        return shlex.quote(text)
    return text if _SAFE_FOR_CMD.fullmatch(text) else '"' + text.replace('"', "") + '"'
