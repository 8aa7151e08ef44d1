"""Files of generated texts."""

from __future__ import annotations

from pathlib import Path

from paceline.train.parts import Part, decisive, parts_of


def test_every_prompt_is_in_one_part_and_no_part_is_empty(tmp_path: Path) -> None:
    prompts = [(number,) for number in range(7)]
    for size in range(1, 9):
        parts = parts_of(prompts, size, tmp_path)
        assert [prompt for part in parts for prompt in part.prompts] == prompts
        assert all(part.prompts for part in parts)
        assert all(part.prompts[0] == (part.first,) for part in parts)
    assert parts_of(prompts, 4, tmp_path)[1] == Part(tmp_path / "part-0001.npz", 4, prompts[4:])
    assert parts_of([], 4, tmp_path) == []


def test_a_smaller_batch_is_no_other_text() -> None:
    known = {"seed": 1, "texts": {"batch": 4, "count": 9}}
    assert decisive(known) == decisive({"seed": 1, "count": 9, "batch": 2}) == {"seed": 1, "count": 9}
    assert decisive({"seed": 1, "texts": {"batch": 4, "count": 8}}) != decisive(known)
