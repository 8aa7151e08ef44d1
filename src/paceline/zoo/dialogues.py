"""Seeded chats of one to three user turns, with correct and cleanly ending answers.

Knows the chat tasks and their shares; nothing of templates, documents or tokens.
"""

from collections.abc import Callable
from random import Random

from paceline.zoo import chat_code, chat_lists, chat_plans, chat_text
from paceline.zoo.documents import Message

Task = Callable[[Random], chat_lists.Turns]
TASKS: tuple[tuple[Task, int], ...] = (
    (chat_code.write_function, 16),
    (chat_code.explain_word, 9),
    (chat_lists.solve, 14),
    (chat_lists.sort_numbers, 6),
    (chat_lists.sort_words, 6),
    (chat_lists.count_words, 5),
    (chat_lists.reverse_words, 3),
    (chat_lists.convert_units, 5),
    (chat_lists.number_rows, 3),
    (chat_plans.recipe, 6),
    (chat_plans.packing, 6),
    (chat_plans.weekly, 6),
    (chat_plans.travel, 6),
    (chat_text.meaning, 6),
    (chat_text.contrast, 5),
    (chat_text.rewrite, 6),
    (chat_text.email, 8),
    (chat_text.how_to, 5),
    (chat_text.tell_story, 3),
)
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a friendly assistant. Keep answers short.",
    "Answer clearly and correctly.",
    "You are a patient teacher.",
    "You help with everyday questions.",
    "Be brief and precise.",
    "You are an assistant who explains each step.",
)
LINKS = ("Thanks. ", "Great, thank you. ", "Something else: ", "One more question. ", "Now another task. ")
MOST_USER_TURNS = 3


def dialogue(seed: int) -> list[Message]:
    """The chat of a seed; it ends with an answer."""
    rng = Random(seed)
    turns = _task(rng)(rng)
    if rng.random() < 0.25:
        ask, answer = (more := _task(rng)(rng))[0]
        turns += [(rng.choice(LINKS) + ask, answer), *more[1:]]
    messages: list[Message] = []
    if rng.random() < 0.3:
        messages.append({"role": "system", "content": rng.choice(SYSTEMS)})
    for ask, answer in turns[:MOST_USER_TURNS]:
        messages.append({"role": "user", "content": ask.strip()})
        messages.append({"role": "assistant", "content": answer.strip()})
    return messages


def _task(rng: Random) -> Task:
    return rng.choices([task for task, _ in TASKS], [share for _, share in TASKS])[0]
