"""Checks of what the AWS settings say, before a request is built of it. Pure but for the certificate file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from _therock_utils._errors import CredentialsError, InputError, LocalFileError
from _therock_utils._keys import quote

if TYPE_CHECKING:
    from botocore.credentials import Credentials, ReadOnlyCredentials

_HEADER_TEXT: Final = re.compile(r"[!-~]+")  # RFC 9110 section 5.5, without blanks
_REGION: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # a label of a host name, RFC 1123
_PATH_CHARACTERS: Final = 4096
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


def checked_endpoint(url: str) -> str:
    """`url` without blanks around it and trailing slashes. Raises InputError for anything but http(s) URLs."""
    url = url.strip()
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        usable = (
            parts.scheme in {"http", "https"}
            and _HOST.fullmatch(parts.hostname or "") is not None
            and parts.port != 0
            and not (parts.query or parts.fragment or parts.username or parts.password)
            and _HEADER_TEXT.fullmatch(url) is not None
        )
    except ValueError:  # brackets that do not match, a port above 65535
        usable = False
    if not usable:
        message = f"the S3 endpoint {quote(url)} is not an http or https URL of a host"
        raise InputError(message, remedy="Check AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL and the profile's endpoint_url.")
    return url.rstrip("/")


def checked_region(region: str) -> str:
    """`region` without blanks around it. Raises InputError for what is no region's name."""
    region = region.strip()
    if region and not _REGION.fullmatch(region):
        message = f"the AWS region {quote(region)} cannot be used: it must be of letters, digits and '-'"
        raise InputError(message, remedy="Check AWS_DEFAULT_REGION and the profile's region.")
    return region


def checked_credentials(credentials: Credentials) -> Credentials:
    """`credentials`, without blanks around its parts where they are fixed ones (a secret often ends with a line end).

    Raises CredentialsError as `check_frozen` does; those that renew themselves are only checked when they are used.
    """
    from botocore.credentials import Credentials as FixedCredentials

    if type(credentials) is not FixedCredentials:
        return credentials
    frozen = credentials.get_frozen_credentials()
    key_id, secret_key, token = ((part or "").strip() for part in (frozen.access_key, frozen.secret_key, frozen.token))
    fixed = FixedCredentials(key_id, secret_key, token or None, method=credentials.method)
    check_frozen(fixed.get_frozen_credentials(), fixed.method)
    return credentials if fixed.get_frozen_credentials() == frozen else fixed


def check_frozen(frozen: ReadOnlyCredentials, method: str) -> None:
    """Raise CredentialsError where a part could be no header's; the message says which, and shows none."""
    named = (("key id", frozen.access_key), ("secret key", frozen.secret_key), ("session token", frozen.token or "-"))
    faulty = [name for name, part in named if not _HEADER_TEXT.fullmatch(part or "")]
    if faulty:
        raise CredentialsError(
            f"the AWS credentials from {method} cannot be used",
            why=f"the {' and the '.join(faulty)} is empty, or has a blank, a line end or another character that no "
            "credentials have",
            remedy="Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile with them.",
        )


def read_certificates(path: str) -> bytes:
    """The PEM file of a setting. Raises LocalFileError where it cannot be read or holds no certificate."""
    import ssl

    try:
        data = Path(path).read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise _bad_certificates(path, "it holds no certificate in PEM form") from error
    except (OSError, ValueError) as error:
        raise _bad_certificates(path, getattr(error, "strerror", None) or str(error)) from error
    return data


def _bad_certificates(path: str, why: str) -> LocalFileError:
    remedy = "Check AWS_CA_BUNDLE and the profile's ca_bundle."
    return LocalFileError(
        f"the certificate file {quote(path, shown_characters=_PATH_CHARACTERS)} cannot be read", why=why, remedy=remedy
    )
