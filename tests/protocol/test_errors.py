"""Error codes."""

import pickle

import pytest
from kafka import errors as kafka_python_errors

from tidelog.errors import TidelogError
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError


def test_codes_have_the_numbers_that_clients_know() -> None:
    known = {
        getattr(each, "errno"): name  # noqa: B009
        for name, each in vars(kafka_python_errors).items()
        if isinstance(each, type) and isinstance(getattr(each, "errno", None), int)
    }
    assert len(known) > 80
    assert set(known) - set(ErrorCode) <= {-1}
    assert [int(code) for code in sorted(ErrorCode)] == list(range(-1, 134))
    assert ErrorCode(0) is ErrorCode.NONE
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_code_of_a_newer_broker_has_a_name() -> None:
    unknown = ErrorCode(4711)
    assert (unknown.name, unknown.value) == ("ERROR_4711", 4711)
    assert unknown == 4711
    assert unknown not in set(ErrorCode)
    assert pickle.loads(pickle.dumps(unknown)) == unknown
    assert str(ApiError(unknown, "new")) == "ERROR_4711: new"
    with pytest.raises(ValueError, match="is not a valid ErrorCode"):
        ErrorCode("NONE")  # type: ignore[arg-type]


def test_an_api_error_carries_its_code_and_what_was_wrong() -> None:
    error = ApiError(ErrorCode.INVALID_CONFIG, "retention.ms=soon is not a number")
    assert error.code is ErrorCode.INVALID_CONFIG
    assert error.message == "retention.ms=soon is not a number"
    assert str(error) == "INVALID_CONFIG: retention.ms=soon is not a number"
    assert str(ApiError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"
    assert isinstance(error, TidelogError)
    assert issubclass(ProtocolError, TidelogError)
