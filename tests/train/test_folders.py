"""What the recipes share of the folders that they read and write."""

from __future__ import annotations

from pathlib import Path

from paceline.train.folders import copy_tokenizer


def test_a_checkpoint_gets_what_there_is_of_a_tokenizer_and_its_end_tokens(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    for name in ("tokenizer.json", "generation_config.json", "config.json"):
        (tmp_path / "from" / name).write_text(name)
    copy_tokenizer(tmp_path / "from", tmp_path / "to")
    copied = {path.name: path.read_text() for path in (tmp_path / "to").iterdir()}
    assert copied == {name: name for name in ("tokenizer.json", "generation_config.json")}
