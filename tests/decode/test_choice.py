"""Which method decodes a model, which models it takes, and what is refused beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.decode.choice import Asked, Choice, choose, choose_method, named_model
from paceline.errors import ConfigError
from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_DRAFTER, BUNDLED_TARGET, bundled_folder


@pytest.mark.parametrize(
    ("asked", "diffuses", "method"),
    [
        (Asked(), False, "ar"),
        (Asked(drafter="d"), False, "dflash"),
        (Asked("ar"), False, "ar"),
        (Asked("dflash", drafter="d"), False, "dflash"),
        (Asked("lookup"), False, "lookup"),
        (Asked(), True, "diffusion"),
        (Asked("diffusion"), True, "diffusion"),
        (Asked(verifier="v"), True, "apd"),
        (Asked("apd", verifier="v"), True, "apd"),
    ],
)
def test_auto_goes_by_the_model_and_then_by_its_partner(asked: Asked, diffuses: bool, method: str) -> None:
    assert choose_method(asked, diffuses) == method


@pytest.mark.parametrize(
    ("asked", "diffuses", "message"),
    [
        ({"method": "magic"}, False, "method is 'magic'. There are: auto, ar, dflash, lookup, diffusion, apd."),
        ({"method": "diffusion"}, False, "method is 'diffusion', and the model is autoregressive"),
        ({"method": "apd"}, False, "method is 'apd', and the model is autoregressive"),
        ({"method": "apd", "verifier": "v"}, False, "method is 'apd', and the model is autoregressive"),
        ({"method": "dflash", "verifier": "v"}, False, "verifier is 'v', and the model is autoregressive"),
        ({"method": "dflash"}, False, "there is no drafter"),
        ({"method": "ar", "drafter": "d"}, False, "drafter is 'd', and the method is 'ar', which uses none."),
        ({"method": "lookup", "drafter": "d"}, False, "drafter is 'd', and the method is 'lookup', which uses none."),
        ({"method": "lookup", "verifier": "v"}, False, "verifier is 'v', and the model is autoregressive"),
        ({"method": "lookup"}, True, "method is 'lookup', and the model is a diffusion language model"),
        ({"method": "ar"}, True, "method is 'ar', and the model is a diffusion language model"),
        ({"method": "dflash", "drafter": "d"}, True, "method is 'dflash', and the model is a diffusion"),
        ({"drafter": "some/folder"}, True, "drafter is 'some/folder', and a diffusion language model needs none"),
        ({"method": "apd"}, True, "method is 'apd', but there is no verifier. Name a small autoregressive model"),
        ({"method": "apd", "verifier": "v", "drafter": "d"}, True, "drafter is 'd', and a diffusion language model"),
        ({"method": "diffusion", "verifier": "v"}, True, "verifier is 'v', and the method is 'diffusion'"),
        ({"verifier": "v"}, False, "verifier is 'v', and the model is autoregressive"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(asked: dict[str, Any], diffuses: bool, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_method(Asked(**asked), diffuses)
    assert message in str(caught.value)
    assert caught.value.remedy


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """A target and a diffusion model, as far as config.json tells."""
    configs = {"target": {"model_type": "qwen3"}, "dllm": {"model_type": "Dream", "mask_token_id": 3}}
    for name, config in configs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return {name: tmp_path / name for name in configs}


def test_config_json_alone_decides(folders: dict[str, Path]) -> None:
    assert choose(Asked(), folders["target"]) == Choice("ar", folders["target"], None)
    assert choose(Asked(drafter="d"), folders["target"]) == Choice("dflash", folders["target"], "d")
    assert choose(Asked(), folders["dllm"]) == Choice("diffusion", folders["dllm"], None)
    assert choose(Asked(verifier="v"), folders["dllm"]) == Choice("apd", folders["dllm"], "v")
    with pytest.raises(ConfigError, match="the model is autoregressive"):
        choose(Asked("apd"), folders["target"])
    with pytest.raises(ConfigError, match="model is 'no-such-model': there is no such model") as caught:
        choose(Asked(), "no-such-model")
    assert caught.value.param == "model"
    with pytest.raises(ConfigError, match=r"the folder has no config\.json") as caught:
        choose(Asked(), folders["target"].parent)
    assert caught.value.param == "model"


def test_the_bundled_target_brings_its_drafter() -> None:
    folder = bundled_folder(BUNDLED_TARGET)
    assert choose(Asked(), None) == choose(Asked("dflash"), folder) == Choice("dflash", folder, BUNDLED_DRAFTER)
    assert choose(Asked("ar"), None) == Choice("ar", folder, None)
    assert choose(Asked("lookup"), None) == Choice("lookup", folder, None)
    assert choose(Asked(drafter="d"), None) == Choice("dflash", folder, "d")


def test_what_is_left_out_is_bundled() -> None:
    assert named_model(Asked(), None) == named_model(Asked("dflash"), None) == BUNDLED_TARGET
    assert named_model(Asked("apd"), None) == named_model(Asked(verifier="v"), None) == BUNDLED_DLLM
    assert named_model(Asked("apd"), "mine") == "mine"


def test_choosing_imports_no_torch() -> None:
    code = "import sys, paceline.decode.choice, paceline.cli.effective; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
