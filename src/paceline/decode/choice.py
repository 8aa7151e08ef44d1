"""Which method decodes a model, which models it takes, and whether what was asked for fits together.

What was left out is a bundled model, where one goes with the rest. Goes by config.json alone: reads no weights, imports
no torch. The settings that only one method has are in `settings`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from paceline.errors import ConfigError
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
        told = f"method is {asked.method!r}, and the model is a diffusion language model: it has no next token."
        raise ConfigError(told, remedy="Use diffusion, apd or auto, or give an autoregressive model.", param="method")
    if asked.drafter is not None:
        told = f"drafter is {str(asked.drafter)!r:.80}, and a diffusion language model needs none."
        raise ConfigError(told, remedy="Leave it out, or give an autoregressive model.", param="drafter")
    if asked.method == "apd" and asked.verifier is None:
        remedy = "Name a small autoregressive model of the same tokenizer: verifier=…, --verifier …"
        raise ConfigError("method is 'apd', but there is no verifier.", remedy=remedy, param="verifier")
    if asked.method == "diffusion" and asked.verifier is not None:
        told = f"verifier is {str(asked.verifier)!r:.80}, and the method is 'diffusion', which uses none."
        raise ConfigError(told, remedy="Leave it out, or use apd.", param="verifier")
    return "diffusion" if asked.verifier is None else "apd"


def _for_target(asked: Asked) -> Literal["ar", "dflash", "lookup"]:
    if asked.method in ("diffusion", "apd"):
        told = f"method is {asked.method!r}, and the model is autoregressive: it has no mask token."
        raise ConfigError(told, remedy="Give Dream or LLaDA, or use auto.", param="method")
    if asked.verifier is not None:
        told = f"verifier is {str(asked.verifier)!r:.80}, and the model is autoregressive: APD needs a diffusion model."
        raise ConfigError(told, remedy="Leave it out, or give Dream or LLaDA as the model.", param="verifier")
    if asked.method == "dflash" and asked.drafter is None:
        remedy = "Name one: drafter=…, --drafter …"
        raise ConfigError("method is 'dflash', but there is no drafter.", remedy=remedy, param="drafter")
    if asked.method in ("ar", "lookup"):
        return _alone(asked)
    return "ar" if asked.drafter is None else "dflash"


def _alone(asked: Asked) -> Literal["ar", "lookup"]:
    if asked.drafter is not None:
        told = f"drafter is {str(asked.drafter)!r:.80}, and the method is {asked.method!r}, which uses none."
        remedy = "Leave it out, or use dflash" + ("." if asked.method == "ar" else ": it looks up, too, with lookup.")
        raise ConfigError(told, remedy=remedy, param="drafter")
    return "ar" if asked.method == "ar" else "lookup"
