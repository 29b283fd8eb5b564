"""One tree of exceptions. Each says what happened, why, and what to do, and carries the process exit code.

Exit codes: 1 incomplete, 2 bad input, 3 not found, 4 not permitted, 5 service unreachable or busy, 6 bytes that differ,
7 GitHub's API, 8 local file system, 70 a fault of this program, 130 SIGINT, 143 SIGTERM.
"""

from __future__ import annotations

from typing import ClassVar


class OutputsError(Exception):
    """Base of every error that this project raises on purpose.

    `what` is one line, `why` the cause as far as known, `remedy` what the reader can do about it.
    """

    exit_code: int = 1
    transient: ClassVar[bool] = False  # can pass by itself, so a retry makes sense

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        """Keep the three parts apart: renderers lay them out, `str()` joins them."""
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        """All parts on one line each."""
        return "\n".join(part for part in (self.what, self.why, self.remedy) if part)


class IncompleteError(OutputsError):
    """Some of what was asked for was not stored; the report lists both sides."""

    exit_code = 1


class InputError(OutputsError, ValueError):
    """An input, option or environment value that cannot be used."""

    exit_code = 2


class IllegalLocationError(InputError):
    """A name that would make an object key outside the rules of the layout."""


class NotFoundError(OutputsError):
    """Something that was asked for by name is not there."""

    exit_code = 3


class BucketNotFoundError(NotFoundError):
    """The bucket itself does not exist."""


class NotPermittedError(OutputsError):
    """The service knows the request's sender and says no."""

    exit_code = 4


class CredentialsError(NotPermittedError):
    """There are no credentials, or those there are cannot be used (expired, unknown key, bad signature)."""


class WrongRegionError(NotPermittedError):
    """The bucket lives in another region than the request was sent to."""


class ServiceUnavailableError(OutputsError):
    """No connection, a time-out, 408, 429 or 5xx, also after the retries within the time bound."""

    exit_code = 5
    transient = True


class ServiceError(OutputsError):
    """The service refused a request for a reason that a retry does not change."""

    exit_code = 5


class IntegrityError(OutputsError):
    """Bytes that are not what they should be: a file changed while it was read, a stored object differs."""

    exit_code = 6


class ConflictError(OutputsError):
    """Other bytes already lie under a key that was to be written, or a conditional write lost its race."""

    exit_code = 6


class GitHubError(OutputsError):
    """GitHub's API did not answer the question."""

    exit_code = 7


class LocalFileError(OutputsError):
    """The local file system refused: no such file, no permission, disk full."""

    exit_code = 8


class CancelledError(OutputsError):
    """SIGINT or SIGTERM arrived; its `exit_code` is 128 plus the signal's number."""

    def __init__(self, signal_number: int) -> None:
        """`signal_number` as in the `signal` module (2 or 15)."""
        super().__init__("cancelled", why=f"signal {signal_number} arrived")
        self.exit_code = 128 + signal_number
