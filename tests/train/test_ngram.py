"""The 5-gram baseline against Kneser-Ney written out with dictionaries."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from paceline.train.ngram import ngrams

VOCAB = 6


def documents(seed, count):
    rng = np.random.default_rng(seed)
    return [
        rng.choice(VOCAB, p=[0.4, 0.2, 0.2, 0.1, 0.1, 0.0], size=rng.integers(1, 12)).tolist() for _ in range(count)
    ]


def arrays(texts):
    starts = np.cumsum([0, *map(len, texts)])
    return np.array([token for text in texts for token in text], dtype=np.int64), starts


def slow_model(texts, order=5):
    """(history of up to four tokens, token) -> probability, straight from the definition."""
    grams = [Counter() for _ in range(order + 1)]
    for text in texts:
        padded = ["mark"] * (order - 1) + text
        for end in range(order - 1, len(padded)):
            for length in range(1, order + 1):
                grams[length][tuple(padded[end - length + 1 : end + 1])] += 1
    counts = {order: grams[order]}
    for length in range(1, order):
        before = defaultdict(set)
        for gram in grams[length + 1]:
            before[gram[1:]].add(gram[0])
        counts[length] = {gram: len(each) for gram, each in before.items()}

    def probability(history, token, length):
        if length == 0:
            return 1.0 / VOCAB
        own = history[len(history) - length + 1 :]
        shorter = probability(history, token, length - 1)
        followers = {gram: count for gram, count in counts[length].items() if gram[:-1] == own}
        if not followers:
            return shorter
        values = list(counts[length].values())
        once, twice = values.count(1), values.count(2)
        discount = once / (once + 2 * twice) if once else 0.5
        total = sum(followers.values())
        kept = max(0.0, followers.get((*own, token), 0) - discount) / total if (*own, token) in followers else 0.0
        return kept + discount * len(followers) / total * shorter

    return lambda history, token: probability(tuple((["mark"] * 4 + history)[-4:]), token, order)


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_are_those_of_the_definition(seed):
    seen, unseen = documents(seed, 30), documents(seed + 100, 20)
    found = ngrams(*arrays(seen), VOCAB).nats(*arrays(unseen))
    model = slow_model(seen)
    expected = [-math.log(model(text[:place], token)) for text in unseen for place, token in enumerate(text)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_every_history_gives_a_distribution():
    model = ngrams(*arrays(documents(0, 30)), VOCAB)
    histories = [text[:-1] for text in documents(7, 30)]
    for history in histories:
        texts = [[*history, token] for token in range(VOCAB)]
        tokens, starts = arrays(texts)
        last = model.nats(tokens, starts)[starts[1:] - 1]
        assert np.exp(-last).sum() == pytest.approx(1.0)


def test_a_document_does_not_see_the_one_before_it():
    model = ngrams(*arrays([[0, 1, 2, 3]] * 5 + [[4, 4]]), VOCAB)
    alone = model.nats(*arrays([[2, 3]]))
    np.testing.assert_array_equal(model.nats(*arrays([[0, 1], [2, 3]]))[2:], alone)
