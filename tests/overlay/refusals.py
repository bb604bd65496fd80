"""Tables of calls that are refused, each with the error and the sentence that the user reads."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

# error -> sentence -> a call that raises this error with this sentence; " ... " is any text
Refusals = dict[type[Exception], dict[str, Callable[..., object]]]


def each_refusal(*tables: Refusals) -> pytest.MarkDecorator:
    """Returns the decorator of a test with the parameters `error`, `sentence` and `call`."""
    cases = [
        pytest.param(error, sentence, call, id=sentence)
        for table in tables
        for error, calls in table.items()
        for sentence, call in calls.items()
    ]
    return pytest.mark.parametrize(("error", "sentence", "call"), cases)


def to_pattern(sentence: str) -> str:
    return ".*".join(re.escape(part) for part in sentence.split(" ... "))


def check_refusal(error: type[Exception], sentence: str, call: Callable[[], object]) -> None:
    """Checks that the call raises just this error, with a message of one line that contains the sentence."""
    with pytest.raises(error, match=to_pattern(sentence)) as raised:
        call()
    message = str(raised.value)
    assert type(raised.value) is error
    assert "\n" not in message
    assert "UOp(" not in message
