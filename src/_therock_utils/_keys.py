"""What an object key may look like (design rule "legal by construction"). Pure."""

from __future__ import annotations

import re
import unicodedata

from _therock_utils._errors import IllegalLocationError

MAX_KEY_BYTES = 1024
"""Longest object key in UTF-8 bytes (AWS S3 User Guide, "Naming Amazon S3 objects")."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PLATFORM = re.compile(r"[a-z0-9]+")
# Nearly every key, and no illegal one: segments of printable ASCII but backslashes, other than "." and "..".
_PLAIN_KEY = re.compile(r"(?!\.\.?(?:/|\Z))[ -.0-\[\]-~]+(?:/(?!\.\.?(?:/|\Z))[ -.0-\[\]-~]+)*")
_SHOWN_CHARACTERS = 80


def quote(value: str, *, shown_characters: int = _SHOWN_CHARACTERS) -> str:
    """`value` for a message: quoted, escaped to ASCII and cut, so that it can neither act nor flood."""
    return ascii(value if len(value) <= shown_characters else value[:shown_characters] + "...")


def key_fault(key: str) -> str:
    """Why `key` is no legal object key, or "" where it is one. The empty key is legal: the bucket's root."""
    if not key or (len(key) <= MAX_KEY_BYTES and _PLAIN_KEY.fullmatch(key)):
        return ""
    faults = (segment_fault(segment) for segment in key.split("/"))
    fault = next((fault for fault in faults if fault), "")
    if fault:
        return fault
    length_bytes = len(key.encode())
    return f"it has {length_bytes} bytes in UTF-8, more than {MAX_KEY_BYTES}" if length_bytes > MAX_KEY_BYTES else ""


def segment_fault(segment: str) -> str:
    """Why `segment` cannot be one part of a key between slashes, or ""."""
    if not segment:
        return "it has an empty segment (or a leading or trailing '/')"
    if segment in {".", ".."}:
        return f"it has the segment {quote(segment)}"
    categories = {unicodedata.category(character) for character in segment}
    faults = (
        ("/" in segment, "it has a '/' where one segment is wanted"),
        ("\\" in segment, "it has a backslash"),
        (bool(categories & {"Cc", "Zl", "Zp"}), "it has a control character"),
        ("Cs" in categories, "it is not valid Unicode"),
    )
    return next((fault for found, fault in faults if found), "")


def check_key(key: str) -> str:
    """Return `key` if it is legal, else raise IllegalLocationError."""
    return _checked(key, key_fault(key), "object key")


def check_segment(value: str, what: str) -> str:
    """Return `value` if it is one legal segment, else raise IllegalLocationError that names `what`."""
    return _checked(value, segment_fault(value), what)


def check_bucket(bucket: str) -> str:
    """Return `bucket` if it can be a bucket's name, else raise IllegalLocationError.

    Wider than S3's naming rule, so that a placeholder such as `local` serves for staging.
    """
    return _checked(bucket, "" if _BUCKET.fullmatch(bucket) else "it is not a bucket name", "bucket")


def check_run_id(run_id: str) -> str:
    """Return `run_id` if it fits `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`, else raise IllegalLocationError."""
    fault = (
        "" if _RUN_ID.fullmatch(run_id) else "it must be 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit"
    )
    return _checked(run_id, fault, "run_id")


def check_platform(platform: str) -> str:
    """Return `platform` if it fits `[a-z0-9]+`, else raise IllegalLocationError."""
    return _checked(platform, "" if _PLATFORM.fullmatch(platform) else "it must be of a-z 0-9", "platform")


def check_external_repo(external_repo: str) -> str:
    """Return `external_repo` if it is "" or one segment and a slash, else raise IllegalLocationError."""
    if not external_repo:
        return external_repo
    fault = segment_fault(external_repo[:-1]) if external_repo.endswith("/") else "it must end with '/'"
    return _checked(external_repo, fault, "external_repo")


def _checked(value: str, fault: str, what: str) -> str:
    if fault:
        message = f"{what} {quote(value)} cannot be used: {fault}"
        raise IllegalLocationError(message)
    return value
