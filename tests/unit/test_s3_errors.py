"""How answers and failures of the service become errors. `faults/` tries the same with a real server."""

from __future__ import annotations

import pytest
from botocore import exceptions
from botocore.credentials import Credentials
from botocore.parsers import ResponseParserError
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils import _errors
from _therock_utils._s3_calls import boto3_call
from _therock_utils._s3_errors import (
    RequestContext,
    ServiceAnswer,
    from_answer,
    is_transient,
    no_credentials,
    parse_obstore_message,
    translate_botocore,
)
from _therock_utils._s3_session import S3Connection

AWS = RequestContext("store", "s3://bucket/key", "bucket", "us-east-2", "", "the credentials from env")
ANONYMOUS = RequestContext("read", "s3://bucket/key", "bucket", "us-east-2", "", "")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 599])
def test_a_busy_service_can_pass(status: int) -> None:
    assert is_transient(ServiceAnswer(status))


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 412, 416, 501])
def test_a_refusal_does_not_pass(status: int) -> None:
    assert not is_transient(ServiceAnswer(status))


@pytest.mark.parametrize("code", ["SlowDown", "RequestTimeout", "NoSuchUpload", "OperationAborted", "Throttling"])
def test_some_codes_pass_whatever_their_status(code: str) -> None:
    assert is_transient(ServiceAnswer(400, code))


@pytest.mark.parametrize(
    ("failure", "transient"),
    [("refused", True), ("dns", True), ("timeout", True), ("connection", True), ("tls", False)],
)
def test_only_an_untrusted_certificate_is_no_passing_failure(failure: str, *, transient: bool) -> None:
    error = from_answer(ServiceAnswer(failure=failure), AWS)
    assert error.transient is transient
    assert error.why
    assert error.remedy


def test_a_denied_anonymous_request_asks_for_credentials() -> None:
    assert "configure AWS credentials" in from_answer(ServiceAnswer(403), ANONYMOUS).remedy
    assert "without credentials" in from_answer(ServiceAnswer(403), ANONYMOUS).why


def test_a_denied_signed_request_says_which_permission_is_missing() -> None:
    remedy = from_answer(ServiceAnswer(403), AWS).remedy
    assert "s3:PutObject" in remedy
    assert "the credentials from env" in remedy


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken"])
def test_a_remedy_that_asks_for_a_login_names_all_that_it_takes(code: str) -> None:
    for remedy in (from_answer(ServiceAnswer(403, code), AWS).remedy, no_credentials(AWS).remedy):
        for part in ("aws-actions/configure-aws-credentials", "iam_role", "aws_region", "`mode: locate`", "id-token"):
            assert part in remedy


@given(st.text())
def test_any_message_can_be_parsed(message: str) -> None:
    answer = parse_obstore_message(message)
    assert answer.failure or answer.status >= 0


@given(st.text())
def test_whatever_the_service_says_is_shown_as_one_printable_line(message: str) -> None:
    text = ServiceAnswer(403, "AccessDenied", message).text
    assert text.isprintable()
    assert text.isascii()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.NoCredentialsError(), _errors.CredentialsError),
        (exceptions.CredentialRetrievalError(provider="x", error_msg="y"), _errors.CredentialsError),
        (exceptions.ProfileNotFound(profile="x"), _errors.CredentialsError),
        (exceptions.EndpointConnectionError(endpoint_url="x"), _errors.ServiceUnavailableError),
        (exceptions.ReadTimeoutError(endpoint_url="x"), _errors.ServiceUnavailableError),
        (exceptions.SSLError(endpoint_url="x", error="y"), _errors.ServiceError),
        (exceptions.ParamValidationError(report="x"), _errors.ServiceError),
    ],
)
def test_botocore_errors_without_an_answer_are_sorted_by_kind(
    error: exceptions.BotoCoreError, kind: type[_errors.OutputsError]
) -> None:
    assert type(translate_botocore(error, AWS)) is kind


def test_an_answer_that_botocore_cannot_parse_names_the_setting_of_the_endpoint() -> None:
    connection = S3Connection(
        endpoint_url="http://127.0.0.1:9",
        credentials_for=lambda _: Credentials("AKIA", "made-up"),
        request_timeout_seconds=1,
        retry_seconds=0,
    )

    def request(_: object) -> None:
        raise ResponseParserError("invalid XML\x1b received")

    with pytest.raises(_errors.ServiceError) as caught:
        boto3_call(connection, "list", "bucket", "", request)
    assert "AWS_ENDPOINT_URL_S3" in caught.value.remedy
    assert "\x1b" not in str(caught.value)


def test_the_region_in_a_head_answer_reaches_the_remedy() -> None:
    answer = {
        "Error": {"Code": "301", "Message": ""},
        "ResponseMetadata": {"HTTPStatusCode": 301, "HTTPHeaders": {"x-amz-bucket-region": "eu-west-3"}},
    }
    error = translate_botocore(exceptions.ClientError(answer, "HeadObject"), AWS)  # type: ignore[arg-type] # a real answer has more
    assert type(error) is _errors.WrongRegionError
    assert "eu-west-3" in error.remedy


def test_a_head_answer_has_its_status_for_a_code() -> None:
    error = translate_botocore(exceptions.ClientError({"Error": {"Code": "404"}}, "HeadObject"), AWS)
    assert type(error) is _errors.NotFoundError
