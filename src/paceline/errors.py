"""Every error a user of Paceline can meet, as one tree.

PacelineError
├── BadRequest              400  a prompt or a sampling setting that cannot be served
│   └── ContextOverflow     400  the prompt does not fit the model's context
├── ConfigError             400  a setting of the engine, a profile or a file that cannot be used
│   └── SettingError        400  the same, told of settings by name, so that it can be said where they were set
├── Unavailable             503  an engine that takes no requests at the moment
│   └── QueueFull           429  as many wait as may
├── TrainingError           500  data, or a checkpoint of a run, that training cannot go on with
└── CheckpointError         500  a model folder that cannot be loaded
    ├── UnsafeCheckpoint    500  pickle, remote code or a file built to mislead
    ├── UnsupportedModel    500  a family or a feature that Paceline does not run
    └── VocabularyMismatch  400  two models that do not speak the same tokens

Each message says what was wrong, with which value, and what to do. Asserts elsewhere are for our own bugs.
This module knows nothing of HTTP frameworks; it only states the status a server answers with.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "BadRequest",
    "CheckpointError",
    "ConfigError",
    "ContextOverflow",
    "PacelineError",
    "QueueFull",
    "SettingError",
    "TrainingError",
    "Unavailable",
    "UnsafeCheckpoint",
    "UnsupportedModel",
    "VocabularyMismatch",
]


class PacelineError(Exception):
    """Root of the tree.

    Args:
        message: what was wrong, and with which value.
        remedy: what the user can do about it.
        param: name of the offending setting, where there is one.
    """

    http_status = 500

    def __init__(self, message: str, *, remedy: str = "", param: str | None = None) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy
        self.param = param


class BadRequest(PacelineError):
    """A prompt or a sampling setting that cannot be served."""

    http_status = 400


class ContextOverflow(BadRequest):
    """The prompt does not fit the model's context; names both lengths in tokens, and holds them.

    `what` says whose tokens were counted.
    """

    def __init__(self, prompt_tokens: int, context_tokens: int, what: str = "The prompt has") -> None:
        super().__init__(
            f"{what} {prompt_tokens} tokens, the model's context is {context_tokens} tokens.",
            remedy="Shorten the prompt: the answer needs room, too, and Paceline never cuts it silently.",
            param="prompt",
        )
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class ConfigError(PacelineError):
    """A setting of the engine, a profile or a file that cannot be used."""

    http_status = 400


class SettingError(ConfigError):
    """A setting that cannot be used, or settings that do not go together.

    Args:
        told: what is said of each, by its name: `{"tau": "is 0.3", "schedule": "is 'fixed'"}`. The first is `param`.
        so: what else is said of them: ": it has no effect.".
        remedy: what the user can do about it.
    """

    def __init__(self, told: Mapping[str, str], so: str = ".", *, remedy: str) -> None:
        words = ", and ".join(f"{name} {each}" for name, each in told.items())
        super().__init__(f"{words}{so}", remedy=remedy, param=next(iter(told)))
        self.told, self.so = told, so

    def placed(self, places: Mapping[str, tuple[str, str]]) -> SettingError:
        """The same with the key by which a setting was set, and where: " in run.yaml"; others stay as they are."""
        told = {}
        for name, words in self.told.items():
            key, where = places.get(name, (name, ""))
            told[key] = words + where
        return SettingError(told, self.so, remedy=self.remedy)


class Unavailable(PacelineError):
    """An engine that takes no requests at the moment: it drains, or is closed."""

    http_status = 503


class QueueFull(Unavailable):
    """As many requests wait as may; names how many."""

    http_status = 429

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} requests wait, and no more may.", remedy="Try again in a while.")


class TrainingError(PacelineError):
    """Data, or a checkpoint of a run, that training cannot go on with."""


class CheckpointError(PacelineError):
    """A model folder that cannot be loaded: missing, truncated or inconsistent."""


class UnsafeCheckpoint(CheckpointError):
    """Pickle, remote code, or a file built to mislead its reader."""


class UnsupportedModel(CheckpointError):
    """A model family or feature that Paceline does not run."""


class VocabularyMismatch(CheckpointError):
    """Two models, or a model and a tokenizer, that do not speak the same tokens; each may be in order by itself."""

    http_status = 400
