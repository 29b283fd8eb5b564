"""Command lines that a person copies from a summary: a POSIX shell's, or those of Windows' cmd. Pure."""

from __future__ import annotations

import shlex


def language(platform: str) -> str:
    """What a code block with lines for `platform` (linux, windows) is coloured as."""
    return "bat" if platform == "windows" else "sh"


def quoted(text: str, platform: str) -> str:
    """`text` as one argument, with no meaning of its own.

    cmd knows no way to write a `%NAME%` that stays: at its prompt it does, where no such variable is set.
    """
    if platform != "windows":
        return shlex.quote(text)
    inside = text.replace('"', '""')
    return f'"{inside}"'


def download_line(url: str, file_name: str, platform: str) -> str:
    """Fetch `url` to `file_name`. curl's own `-O` would leave the percent-encoding in the name."""
    program = "curl.exe" if platform == "windows" else "curl"  # in PowerShell, curl is another command
    return f"{program} -fL -o {quoted(file_name, platform)} {quoted(url, platform)}"


def unpack_lines(archive: str, folder: str, platform: str) -> tuple[str, ...]:
    """Unpack a .tar.gz into a folder of its own; Windows has tar, too, since 2018."""
    make = f"mkdir {quoted(folder, platform)}" if platform == "windows" else f"mkdir -p {quoted(folder, platform)}"
    return make, f"tar -xzf {quoted(archive, platform)} -C {quoted(folder, platform)}"
