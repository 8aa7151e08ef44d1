import pytest
import torch

from paceline.decode.agree import equal_prefix, longest_prefix, product


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


@pytest.mark.parametrize(("one", "other", "equal"), [([], [], 0), ([5], [5], 1), ([5, 6, 7], [5, 9, 7], 1)])
def test_equal_prefix(one: list[int], other: list[int], equal: int) -> None:
    assert equal_prefix(one, other) == equal


def test_the_product_is_the_normalised_power_of_both_laws() -> None:
    p, q = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).split(1)
    expected = p**0.3 * q**0.7
    found = product(p.log() + 3.0, q.log() - 5.0, 0.3).softmax(-1)
    assert torch.allclose(found, expected / expected.sum(), rtol=1e-14)


def test_at_both_ends_the_product_is_the_model_itself() -> None:
    """So that a choice from it is the model's own, to the bit, and what is ruled out stays so."""
    one, other = torch.tensor([[1.0, -torch.inf]]), torch.tensor([[2.0, -torch.inf]])
    assert product(one, other, 1.0) is one
    assert product(one, other, 0.0) is other
    assert product(one, other, 0.5)[0, 1] == -torch.inf


def test_half_precision_is_mixed_in_single() -> None:
    """A product of bfloat16 would be rounded to 3 digits, and tokens that differ would tie."""
    dllm, verifier = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(1)).bfloat16().unbind()
    assert torch.equal(product(dllm, verifier, 0.3), product(dllm.float(), verifier.float(), 0.3))
