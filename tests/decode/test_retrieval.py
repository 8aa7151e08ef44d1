"""What a sequence may copy: its own text first, a user's file beside it, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked import TOKENIZER

from paceline.decode.adaptive import Adaptive
from paceline.decode.retrieval import Budget, Retrieval, read_known
from paceline.decode.speculation import Lookup, Speculation
from paceline.decode.suffix_index import Reach, SuffixIndex
from paceline.decode.tree import EMPTY, Proposal
from paceline.errors import ConfigError
from paceline.text import Tokenizer

TEXT = [1, 2, 3, 50, 51, 1, 2, 3, 60, 61, 1, 2, 3]


def retrieval(text: list[int], known: list[int] | None = None, shortest: int = 2, factor: float = 9.0) -> Retrieval:
    own = Lookup(prompt_lookup_min=shortest, lookup_factor=factor)
    return Retrieval.of(text, own, None if known is None else SuffixIndex(known, own.prompt_lookup_max))


def test_candidates_are_one_tree_within_the_budget() -> None:
    own = retrieval(TEXT)
    assert own.propose(TEXT, Budget(5, 2, 32)) == Proposal((60, 61, 50, 51), (-1, 0, -1, 2))
    assert own.propose(TEXT, Budget(5, 3, 5)) == Proposal((60, 61, 1, 50, 51), (-1, 0, 1, -1, 3))
    assert own.propose(TEXT, Budget(1, 3, 32)) == Proposal((60, 61, 1), (-1, 0, 1))
    assert retrieval(TEXT, shortest=4).propose(TEXT, Budget(5, 3, 32)) == EMPTY


def test_candidates_are_trusted_as_far_as_the_text_before_them_is_long() -> None:
    assert retrieval(TEXT, factor=1.0).propose(TEXT, Budget(1, 9, 32)) == Proposal((60, 61, 1), (-1, 0, 1))
    assert retrieval(TEXT, factor=0.4).propose(TEXT, Budget(2, 9, 32)) == Proposal((60, 50), (-1, -1))


def test_the_sequence_goes_on() -> None:
    own = retrieval(TEXT)
    own.extend([50])
    assert own.propose([*TEXT, 50], Budget(5, 3, 32)) == Proposal((51, 1, 2), (-1, 0, 1))


def test_a_known_text_wins_where_more_of_it_is_the_same() -> None:
    nearer = retrieval(TEXT, [61, 1, 2, 3, 9, 8])
    assert nearer.propose(TEXT, Budget(1, 2, 32)) == Proposal((9, 8), (-1, 0))
    assert nearer.propose(TEXT, Budget(2, 2, 32)) == Proposal((9, 8, 60, 61), (-1, 0, -1, 2))
    equal = retrieval(TEXT, [0, 1, 2, 3, 9, 8])
    assert equal.propose(TEXT, Budget(1, 2, 32)) == Proposal((60, 61), (-1, 0))
    alone = retrieval([5, 1, 2], [1, 2, 3, 4])
    assert alone.propose([5, 1, 2], Budget(1, 9, 32)) == Proposal((3, 4), (-1, 0))


def test_a_file_is_read_by_the_tokenizer_of_the_target(tmp_path: Path) -> None:
    path = tmp_path / "known.txt"
    path.write_text("ABCABD", encoding="utf-8")
    found = read_known(Lookup(lookup_file=path), TOKENIZER, 64)
    assert found is not None
    assert found.find(TOKENIZER.encode("XAB"), 2, Reach(9), 9).continuations == [
        tuple(TOKENIZER.encode("CABD")),
        tuple(TOKENIZER.encode("D")),
    ]
    assert read_known(Speculation(lookup=3, lookup_file=str(path)), TOKENIZER, 64) is not None
    for settings in (None, Adaptive(), Lookup(), Speculation(), Speculation(lookup_file=str(path))):
        assert read_known(settings, None, 64) is None


def test_ids_that_are_never_drawn_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "known.txt"
    path.write_text("AB`CD", encoding="utf-8")  # ` is id 63
    found = read_known(Lookup(lookup_file=path), TOKENIZER, 63)
    assert found is not None
    assert found.find(TOKENIZER.encode("AB"), 2, Reach(9), 9).continuations == [tuple(TOKENIZER.encode("CD"))]


@pytest.mark.parametrize(
    ("name", "tokenizer", "message"),
    [
        ("missing.txt", TOKENIZER, "cannot be read: No such file"),
        (".", TOKENIZER, "cannot be read: Is a directory"),
        ("latin.txt", TOKENIZER, "cannot be read: 'utf-8' codec"),
        ("nul\0.txt", TOKENIZER, "cannot be read: "),
        ("good.txt", None, "the checkpoint has no tokenizer"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, name: str, tokenizer: Tokenizer | None, message: str
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "good.txt").write_text("good")
    with pytest.raises(ConfigError) as caught:
        read_known(Lookup(lookup_file=tmp_path / name), tokenizer, 64)
    assert message in str(caught.value)
    assert (caught.value.param, bool(caught.value.remedy)) == ("lookup_file", True)
