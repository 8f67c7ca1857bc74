"""How patiently a server is asked, and which settings are none."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.errors import InputError
from apportion.policy import server_connection
from apportion.policy.server_connection import Endpoint


def test_pauses_double_within_bounds_and_heed_retry_after() -> None:
    pauses = [server_connection._pause(1.0, attempt, 0.0) for attempt in (1, 2, 3, 30)]
    assert all(low <= pause <= high for pause, low, high in zip(pauses, (0.5, 1, 2, 60), (1, 2, 4, 60), strict=True))
    assert server_connection._pause(1.0, 1, 7.0) == 7.0
    assert server_connection._pause(1.0, 1, 3600.0) == 60.0
    assert len({server_connection._pause(1.0, 1, 0.0) for _ in range(8)}) > 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "127.0.0.1:8000"}, "looks like http://127.0.0.1:8000/v1, '127.0.0.1:8000' was given"),
        ({"url": "http://me:secret@host/v1"}, "put the key into APPORTION_SERVER_KEY"),
        ({"concurrency": 0}, "given were 0, 300, 4 and 1"),
        ({"timeout": 0.0}, "given were 32, 0, 4 and 1"),
        ({"retries": -1}, "given were 32, 300, -1 and 1"),
        ({"pause": -1.0}, "given were 32, 300, 4 and -1"),
    ],
    ids=["no scheme", "password", "concurrency", "timeout", "retries", "pause"],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        Endpoint(**{"url": "http://127.0.0.1:8000/v1", "model": "tiny"} | settings)
    assert "secret" not in str(refused.value)
