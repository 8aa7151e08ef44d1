"""The documents and the arrays: splits that share nothing, a fixed order, no doubles."""

import ast
import sysconfig
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from paceline.zoo.corpus import (
    build,
    dialogue_document,
    documents,
    drill_document,
    story_document,
    task_document,
    write_arrays,
)
from paceline.zoo.documents import HELDOUT_FIRST_SEED, KINDS, Document, split_of
from paceline.zoo.sources import LONGEST_CHARS, library_documents
from paceline.zoo.tasks import TASK_KINDS, drill, task
from paceline.zoo.tokenizer import END_OF_TEXT, save, train_tokenizer

LIBRARY = list(islice(library_documents(), 600))


def test_the_split_of_a_file_never_changes():
    held = [name for name in (f"file{n}.py" for n in range(1000)) if split_of(name) == "heldout"]
    assert 20 <= len(held) <= 60  # 4 % of 1000, a fixed outcome
    assert split_of("json/decoder.py") == "train"
    assert split_of("statistics.py") == "heldout"


def test_all_parts_of_a_file_are_in_one_split():
    for document in LIBRARY:
        assert document.split == split_of(document.name.split(":")[0])


def test_library_code_is_whole_and_of_a_fair_length():
    definitions = [d for d in LIBRARY if d.kind == "code" and ":window" not in d.name]
    assert len(definitions) > 300
    for document in definitions:
        assert len(document.text) <= LONGEST_CHARS
        ast.parse(document.text)


def test_generated_splits_share_no_seed_and_no_text():
    held = {story_document(HELDOUT_FIRST_SEED + n, "heldout").text for n in range(100)}
    assert held.isdisjoint(story_document(n, "train").text for n in range(1000))
    assert len(held) == 100


def test_documents_are_deterministic_and_without_doubles(monkeypatch):
    double = Document("prose", "again", "train", LIBRARY[0].text)
    monkeypatch.setattr("paceline.zoo.corpus.library_documents", lambda: iter([*LIBRARY[:40], double]))
    first = list(documents("train", story_count=50, dialogue_count=75))
    assert first == list(documents("train", story_count=50, dialogue_count=75))
    assert len({document.plain() for document in first}) == len(first)
    held = list(documents("heldout", story_count=50, dialogue_count=75))
    assert [d.name for d in held if d.kind == "story"] == ["report:1000000000", "story:1000000001"]
    assert {d.name for d in held}.isdisjoint(d.name for d in first)


def test_tasks_come_on_request_and_their_kinds_in_turn(monkeypatch):
    monkeypatch.setattr("paceline.zoo.corpus.library_documents", lambda: iter([]))
    assert list(documents("train", 0, 0, 0)) == []
    found = list(documents("train", 0, 0, 0, task_count=50))
    assert {d.kind for d in found} == {"dialogue"}
    assert [d.name for d in found[:2]] == ["task:0", "task:1"]
    held = list(documents("heldout", 0, 0, 0, task_count=50))
    assert [d.name for d in held] == ["task:1000000000", "task:1000000001"]
    assert task_document(4, "train").messages[1]["content"] == task(TASK_KINDS[1], 4).answer


def test_copies_of_held_out_code_are_not_trained_on(monkeypatch):
    body = "\n".join(f"    total = total + weights[{n}] * values[{n}]" for n in range(20))
    held = Document("code", "a.py:f", "heldout", f"def f(total, weights, values):\n{body}")
    copied = Document("code", "vendor/a.py:g", "train", f"def g(total, weights, values):\n{body}\n    return total")
    other = Document(
        "code", "b.py:h", "train", "def h(numbers):\n    return sum(number * number for number in numbers)"
    )
    monkeypatch.setattr("paceline.zoo.corpus.library_documents", lambda: iter([copied, held, other]))
    assert list(documents("train", 0, 0, 0)) == [other]
    assert list(documents("heldout", 0, 0, 0)) == [held]


def test_pip_is_read_from_its_wheel():
    wheels = list((Path(sysconfig.get_path("stdlib")) / "ensurepip" / "_bundled").glob("pip-*.whl"))
    names = {d.name.split("/")[0] for d in library_documents()}
    assert "asyncio" in names
    assert ("pip" in names) == bool(wheels), "Debian's Python comes without the wheel"


def test_arrays_hold_every_token_of_every_document(tmp_path, capsys):
    chosen = [story_document(n, "train") for n in range(12)] + [dialogue_document(n, "train") for n in range(12)]
    tokenizer = train_tokenizer(chosen, 400)
    write_arrays(tokenizer, chosen, tmp_path / "train.npz")
    with np.load(tmp_path / "train.npz") as arrays:
        tokens, starts, kinds = arrays["tokens"], arrays["starts"], arrays["kinds"]
    assert (tokens.dtype, starts.dtype, kinds.dtype) == (np.uint16, np.int64, np.uint8)
    assert (starts[0], starts[-1], len(starts)) == (0, len(tokens), len(chosen) + 1)
    assert [KINDS[k] for k in kinds] == [d.kind for d in chosen]
    assert all(tokens[starts[1:] - 1] == END_OF_TEXT)
    assert tokenizer.decode(tokens[starts[3] : starts[4] - 1].tolist()) == chosen[3].text
    assert "story" in capsys.readouterr().out


def test_building_writes_a_tokenizer_and_both_splits(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.zoo.corpus.library_documents", lambda: iter(LIBRARY[:40]))
    save(train_tokenizer([story_document(n, "train") for n in range(12)], 400), tmp_path / "small")
    build(tmp_path / "out", tmp_path / "small", stories=25, dialogues=25, modules=25)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tokenizer", "train.npz", "heldout.npz"}
    with np.load(tmp_path / "out" / "heldout.npz") as arrays:
        assert len(arrays["kinds"]) >= 2


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("paceline.zoo.corpus.documents", lambda *counts: pytest.fail("worked first"))
    with pytest.raises(OSError, match="file"):
        build(tmp_path / "file" / "corpus")


def test_a_killed_rebuild_leaves_no_arrays_of_another_tokenizer(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.zoo.corpus.library_documents", lambda: iter(LIBRARY[:40]))
    save(train_tokenizer([story_document(n, "train") for n in range(12)], 400), tmp_path / "small")
    few = (tmp_path / "out", tmp_path / "small", 5, 5, 5)
    build(*few)
    monkeypatch.setattr("paceline.zoo.corpus.write_arrays", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        build(*few)
    assert not list((tmp_path / "out").glob("*.npz"))


def test_a_corpus_of_tasks_and_drills_alone(tmp_path: Path) -> None:
    """Without what comes with Python; held-out documents are of other seeds."""
    train = list(documents("train", 0, 0, 0, 60, 40, library=False))
    heldout = list(documents("heldout", 0, 0, 0, 60, 400, library=False))
    assert {document.name.partition(":")[0] for document in (*train, *heldout)} == {"task", "drill"}
    assert not {document.plain() for document in train} & {document.plain() for document in heldout}
    assert drill_document(7, "train").messages[1]["content"] == drill(7)[1]
