"""A name is a folder, a bundled model or a hub id, in this order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from paceline.errors import ConfigError
from paceline.models.resolve import resolve
from paceline.zoo import catalog


def test_a_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert resolve("owner/name") == Path("owner/name")
    assert resolve(tmp_path) == tmp_path


@pytest.mark.parametrize(
    "name", ["", "nothing", "../x/y", "/no/such", "a/b/c", "a/..", "a" * 100 + "/b", "x\0y", "a" * 5000, "~nobody/x/y"]
)
def test_a_name_of_no_form_is_refused_with_the_three_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("went online"))
    forms = r"a folder, the name of a bundled model, or a hub id \(owner/name\)"
    with pytest.raises(ConfigError, match=f"^drafter is .*: there is no such model. Give {forms}") as caught:
        resolve(name, "drafter")
    assert caught.value.param == "drafter"


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^model is 3: that is no name of a model\. Give a folder"):
        resolve(3)  # type: ignore[arg-type]


def test_bundled_models_are_found_by_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_WEIGHTS", tmp_path)
    folder = tmp_path / "tiny-target"
    folder.mkdir()
    assert catalog.bundled_folder("tiny-target") is None
    (folder / "config.json").write_text("{}")
    assert resolve("tiny-target") == folder
    assert catalog.bundled_folder("../tiny-target") is None
    assert catalog.bundled_folder("") is None


def test_a_hub_id_is_downloaded_without_code_or_pickle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def download(hub_id: str, **options: Any) -> str:
        asked.update(options, hub_id=hub_id)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve("Owner/Name-1.5") == tmp_path
    assert asked["hub_id"] == "Owner/Name-1.5"
    assert {pattern.rpartition(".")[2] for pattern in asked["allow_patterns"]} == {
        "json", "safetensors", "txt", "model", "jinja"
    }  # fmt: skip


@pytest.mark.parametrize(
    "failure",
    [
        lambda: huggingface_hub.errors.LocalEntryNotFoundError("offline"),
        lambda: huggingface_hub.errors.HFValidationError("bad id"),
        lambda: OSError("no route"),
        lambda: ValueError("anything"),
    ],
)
def test_a_failed_download_names_the_id_and_the_forms(
    failure: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: object, **__: object) -> None:
        raise failure()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ConfigError, match=r"^model is 'owner/name'.*a folder, the name of a bundled model"):
        resolve("owner/name")


def test_without_a_download_there_is_what_was_downloaded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("went online"))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: str(tmp_path / "config.json"))
    assert resolve("owner/name", download=False) == tmp_path
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    with pytest.raises(ConfigError, match=r"'owner/name': it is no folder here, and was not downloaded before"):
        resolve("owner/name", download=False)
