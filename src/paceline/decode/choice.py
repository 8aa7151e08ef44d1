"""Which method decodes a model, which models it takes, and whether what was asked for fits together.

What was left out is a bundled model, where one goes with the rest. Goes by config.json alone: reads no weights, imports
no torch. The settings that only one method has are in `settings`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from paceline.errors import ConfigError, SettingError
from paceline.models.diffusion_spec import diffusion_of
from paceline.models.json_file import read_json
from paceline.models.options import Method
from paceline.models.resolve import resolve
from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_DRAFTER, BUNDLED_TARGET, BUNDLED_VERIFIER, bundled_folder

__all__ = ["Asked", "Choice", "Chosen", "choose", "choose_method", "named_model"]

Chosen = Literal["ar", "dflash", "lookup", "diffusion", "apd"]


class Asked(NamedTuple):
    """What a user set of the method, and what the model brings along; None and "auto" where nothing."""

    method: Method = "auto"
    drafter: Any = None
    verifier: Any = None


class Choice(NamedTuple):
    """A method, the folder of its model, and the name of its drafter or verifier, where it has one."""

    method: Chosen
    folder: Path
    partner: str | Path | None


def named_model(asked: Asked, model: str | Path | None) -> str | Path:
    """The model that was asked for; else the bundled one that goes with the rest."""
    if model is not None:
        return model
    diffuses = asked.method in ("apd", "diffusion") or asked.verifier is not None
    return BUNDLED_DLLM if diffuses else BUNDLED_TARGET


def choose(asked: Asked, model: str | Path | None, find: Callable[[str | Path, str], Path] = resolve) -> Choice:
    """What `asked` and `model` come to.

    Args:
        find: the folder of a name, which a setting has.

    Raises:
        ConfigError: no such model, or as `choose_method`. CheckpointError: its config.json is broken.
    """
    name = named_model(asked, model)
    folder = find(name, "model")
    if not (folder / "config.json").is_file():
        told = f"model is {str(name)!r:.200}: the folder has no config.json."
        raise ConfigError(told, remedy="Give the folder of a checkpoint.", param="model")
    if asked.drafter is None and folder == bundled_folder(BUNDLED_TARGET) and asked.method not in ("ar", "lookup"):
        asked = asked._replace(drafter=BUNDLED_DRAFTER)
    if asked.verifier is None and folder == bundled_folder(BUNDLED_DLLM) and asked.method != "diffusion":
        asked = asked._replace(verifier=BUNDLED_VERIFIER)
    method = choose_method(asked, diffusion_of(read_json(folder / "config.json")) is not None)
    return Choice(method, folder, {"dflash": asked.drafter, "apd": asked.verifier}.get(method))


def choose_method(asked: Asked, diffuses: bool) -> Chosen:
    """The method for a model that is a diffusion language model, or an autoregressive one.

    Raises:
        ConfigError: another method, or a partner that is of no use with the one for this model.
    """
    if asked.method not in get_args(Method):
        raise ConfigError(
            f"method is {asked.method!r:.80}.", remedy=f"There are: {', '.join(get_args(Method))}.", param="method"
        )
    return _for_diffusion(asked) if diffuses else _for_target(asked)


def _for_diffusion(asked: Asked) -> Literal["diffusion", "apd"]:
    if asked.method not in ("auto", "diffusion", "apd"):
        so = ", and the model is a diffusion language model: it has no next token."
        raise _refusal("method", asked.method, so, "Use diffusion, apd or auto, or give an autoregressive model.")
    if asked.drafter is not None:
        so = ", and a diffusion language model needs none."
        raise _refusal("drafter", asked.drafter, so, "Leave it out, or give an autoregressive model.")
    if asked.method == "apd" and asked.verifier is None:
        remedy = "Name a small autoregressive model of the same tokenizer: verifier=…, --verifier …"
        raise _refusal("method", asked.method, ", but there is no verifier.", remedy)
    if asked.method == "diffusion" and asked.verifier is not None:
        so = ", and the method is 'diffusion', which uses none."
        raise _refusal("verifier", asked.verifier, so, "Leave it out, or use apd.")
    return "diffusion" if asked.verifier is None else "apd"


def _for_target(asked: Asked) -> Literal["ar", "dflash", "lookup"]:
    if asked.method in ("diffusion", "apd"):
        so = ", and the model is autoregressive: it has no mask token."
        raise _refusal("method", asked.method, so, "Give Dream or LLaDA, or use auto.")
    if asked.verifier is not None:
        so = ", and the model is autoregressive: APD needs a diffusion model."
        raise _refusal("verifier", asked.verifier, so, "Leave it out, or give Dream or LLaDA as the model.")
    if asked.method == "dflash" and asked.drafter is None:
        remedy = "Name one: drafter=…, --drafter …"
        raise _refusal("method", asked.method, ", but there is no drafter.", remedy)
    if asked.method in ("ar", "lookup"):
        return _alone(asked)
    return "ar" if asked.drafter is None else "dflash"


def _alone(asked: Asked) -> Literal["ar", "lookup"]:
    if asked.drafter is not None:
        so = f", and the method is {asked.method!r}, which uses none."
        remedy = "Leave it out, or use dflash" + ("." if asked.method == "ar" else ": it looks up, too, with lookup.")
        raise _refusal("drafter", asked.drafter, so, remedy)
    return "ar" if asked.method == "ar" else "lookup"


def _refusal(name: str, value: object, so: str, remedy: str) -> SettingError:
    return SettingError({name: f"is {str(value)!r:.80}"}, so, remedy=remedy)
