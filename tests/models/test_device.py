"""Words for devices."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import ConfigError
from paceline.models.device import device_named


def test_a_device_has_its_own_name() -> None:
    assert device_named("cpu") == torch.device("cpu")
    assert device_named("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cpu:7", "device is 'cpu:7', and there is one CPU"),
        ("cuda:99", "device 'cuda:99' cannot be used: "),
        ("toaster", "device 'toaster' cannot be used: "),
        ("meta", "device 'meta' computes nothing"),
    ],
)
def test_a_device_that_is_not_there_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        device_named(name)
