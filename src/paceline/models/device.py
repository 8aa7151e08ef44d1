"""Where models compute: from a word to a device that is there. Knows nothing of models."""

from __future__ import annotations

import torch

from paceline.errors import ConfigError

__all__ = ["device_named"]


def device_named(name: str) -> torch.device:
    """ "cpu", "cuda:1", …; "auto" is CUDA where there is one, else the CPU.

    Raises:
        ConfigError: a device that is not there, or that computes nothing.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        told = f"device {name!r} cannot be used: {error}."
        raise ConfigError(told, remedy='Use "cpu" or "auto".', param="device") from error
    if device.type == "cpu" and device.index:
        raise ConfigError(f"device is {name!r}, and there is one CPU.", remedy='Use "cpu".', param="device")
    if device.type == "meta":
        raise ConfigError(f"device {name!r} computes nothing.", remedy='Use "cpu" or "auto".', param="device")
    return device
