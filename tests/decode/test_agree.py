import pytest

from paceline.decode.agree import longest_prefix


@pytest.mark.parametrize(
    ("proposed", "reference", "agreed"),
    [
        ([], [5], 0),
        ([5, 6, 7], [5, 6, 7, 8], 3),
        ([5, 6, 7], [5, 9, 7, 8], 1),  # what agrees after a disagreement does not count
        ([5, 6, 7], [9, 6, 7, 8], 0),
    ],
)
def test_longest_prefix(proposed: list[int], reference: list[int], agreed: int) -> None:
    assert longest_prefix(proposed, reference) == agreed


@pytest.mark.parametrize(
    ("draft", "reference", "committed"),
    [([7], [9, 1], [9]), ([9, 7], [9, 6, 1], [9, 6])],
)
def test_the_first_draft_is_judged_by_the_token_after_the_anchor(
    draft: list[int], reference: list[int], committed: list[int]
) -> None:
    """Report decode-01."""
    agreed = longest_prefix(draft, reference)
    assert agreed == len(committed) - 1
    assert reference[: agreed + 1] == committed


def test_a_missing_bonus_token_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="reference tokens"):
        longest_prefix([1, 2], [1, 2])
