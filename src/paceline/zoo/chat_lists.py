"""Chat tasks about lists, numbers and units whose answers are computed, so they are right.

Each task takes a generator and returns the turns: (user text, assistant text) pairs.
"""

from collections.abc import Sequence
from random import Random

from paceline.zoo import arithmetic, words
from paceline.zoo.tables import rows, say

Turns = list[tuple[str, str]]


def row(items: Sequence[object]) -> str:
    """The items with commas between them."""
    return ", ".join(str(item) for item in items)


def sort_numbers(rng: Random) -> Turns:
    """Sort numbers up or down; perhaps then add them up."""
    numbers = rng.sample(range(1, rng.choice((60, 100, 500))), rng.randrange(5, 10))
    down = rng.random() < 0.4
    ordered = sorted(numbers, reverse=down)
    facts = {"way": "from the largest to the smallest" if down else "from the smallest to the largest"}
    facts |= {"list": row(numbers), "out": row(ordered), "n": str(len(numbers))}
    facts |= {"low": str(min(numbers)), "high": str(max(numbers)), "range": str(max(numbers) - min(numbers))}
    facts |= {"first": str(ordered[0]), "last": str(ordered[-1])}
    asks = (
        "Sort these numbers {way}: {list}.",
        "Please put {list} in order, {way}.",
        "Can you [arrange|order|sort] the following numbers {way}? {list}",
        "I need these values sorted {way}: {list}",
    )
    answers = (
        "Here are the {n} numbers {way}:\n\n{out}\n\nThe smallest is {low} and the largest is {high},"
        " so the range is {high} - {low} = {range}.",
        "Sorted {way}, the list is {out}. It has {n} entries; it begins with {first} and ends with {last}.",
        "I started with {first} and worked towards {last}. The result, {way}:\n\n{out}",
        "[Sorted|In order], {way}: {out}.\n\nBetween {low} and {high} there is a range of {range}.",
    )
    turns = [(say(rng, asks, **facts), say(rng, answers, **facts))]
    return [*turns, _sum_turn(rng, ordered)] if rng.random() < 0.4 else turns


def _sum_turn(rng: Random, numbers: list[int]) -> tuple[str, str]:
    total, steps = numbers[0], []
    for number in numbers[1:]:
        steps.append(f"{total} + {number} = {total + number}")
        total += number
    ask = rng.choice(("And what is their sum?", "Now add them all up, please.", "What do they add up to?"))
    return ask, "Adding one number after the other:\n\n" + "\n".join(steps) + f"\n\nThe sum is {total}."


def sort_words(rng: Random) -> Turns:
    """Sort words by the alphabet or by length; perhaps then turn them round."""
    chosen = rng.sample(words.NOUNS, rng.randrange(5, 9))
    by_length = rng.random() < 0.3
    ordered = sorted(chosen, key=lambda word: (len(word) if by_length else 0, word))
    how = "by length, shortest first" if by_length else "alphabetically"
    asks = (
        "Sort these words {how}: {list}.",
        "Put [the words|these words] in order {how}: {list}.",
        "Could you [order|sort] this list {how}? {list}",
    )
    openings = ("Here is the list, sorted {how}:", "Sorted {how}:", "In order ({how}):")
    note = f'"{ordered[0]}" comes first and "{ordered[-1]}" comes last.'
    note = "Words of the same length are in alphabetical order." if by_length else note
    numbered = "\n".join(
        f"{number}. {word}{f' ({len(word)} letters)' if by_length else ''}" for number, word in enumerate(ordered, 1)
    )
    answer = f"{say(rng, openings, how=how)}\n\n{numbered}\n\n{note}"
    turns = [(say(rng, asks, how=how, list=row(chosen)), answer)]
    if rng.random() < 0.4:
        ask = rng.choice(("Now reverse the list.", "And the other way round?", "Please give it backwards."))
        count = words.NUMBER_WORDS[len(chosen)]
        turns.append(
            (ask, f"In reverse order the words are: {row(ordered[::-1])}. The list still has {count} entries.")
        )
    return turns


def count_words(rng: Random) -> Turns:
    """Count the words that have a length or hold a letter."""
    chosen = rng.sample(words.NOUNS, rng.randrange(6, 10))
    if rng.random() < 0.5:
        size = len(rng.choice(chosen))
        test, found = f"exactly {size} letters", [word for word in chosen if len(word) == size]
        checked = [f"- {word}: {len(word)}" for word in chosen]
    else:
        letter = rng.choice(rng.choice(chosen))
        test, found = f'the letter "{letter}"', [word for word in chosen if letter in word]
        checked = [f"- {word}: {'yes' if letter in word else 'no'}" for word in chosen]
    asks = (
        "How many of these words have {t}? {list}",
        "Count the words with {t}: {list}",
        "Which words have {t}? {list}",
    )
    openings = ("Let me check each word:", "I go through all {n} words:", "Word by word:")
    lead = say(rng, openings, n=words.NUMBER_WORDS[len(chosen)])
    count = f"{len(found)} word has" if len(found) == 1 else f"{len(found)} words have"
    answer = "\n".join([lead, "", *checked, "", f"So {count} {test}: {words.listed(found)}."])
    return [(say(rng, asks, t=test, list=row(chosen)), answer)]


def reverse_words(rng: Random) -> Turns:
    """Give a list, or each word of it, backwards."""
    chosen = rng.sample(words.NOUNS, rng.randrange(4, 8))
    if rng.random() < 0.5:
        ask = say(
            rng, ("[Reverse|Turn round] this list: {list}", "Write in the opposite order: {list}"), list=row(chosen)
        )
        numbered = "\n".join(f"{number}. {word}" for number, word in enumerate(chosen[::-1], 1))
        return [
            (ask, f"The list in the opposite order:\n\n{numbered}\n\nThe last word, {chosen[-1]}, now comes first.")
        ]
    spelled = "\n".join(f"{word} -> {word[::-1]}" for word in chosen)
    asks = ("Spell each of these words backwards: {list}", "Reverse the letters of: {list}")
    answer = f"Here is every word with its letters reversed:\n\n{spelled}\n\nThe order of the words did not change."
    return [(say(rng, asks, list=row(chosen)), answer)]


def convert_units(rng: Random) -> Turns:
    """One or two conversions, each with its multiplication."""
    asks = (
        "How many {small} are {n} {big}?",
        "Convert {n} {big} to {small}.",
        "What is {n} {big} in {small}?",
        "I have {n} {big}. [How much is that|What does that make] in {small}?",
    )
    answers = (
        "One {one} is {factor} {small}. So multiply the amount by {factor}: {n} x {factor} = {result}."
        " That means {n} {big} are {result} {small}.",
        "To get from {big} to {small}, multiply by {factor}.\n\n{n} x {factor} = {result}\n\nSo the result is"
        " {result} {small}. To go back, divide by {factor}.",
        "{n} {big} are {result} {small}, because there are {factor} {small} in one {one} and {n} x"
        " {factor} = {result}.",
    )
    turns: Turns = []
    for big, small, factor in rng.sample(rows("words", "units"), rng.choice((1, 1, 2))):
        amount = rng.randrange(2, 40)
        facts = {"big": big, "small": small, "n": amount, "factor": factor, "result": amount * int(factor)}
        facts["one"] = "foot" if big == "feet" else big.removesuffix("s")
        turns.append((("Thanks. " if turns else "") + say(rng, asks, **facts), say(rng, answers, **facts)))
    return turns


def solve(rng: Random) -> Turns:
    """An arithmetic word problem with its worked answer."""
    problem = arithmetic.word_problem(rng.randrange(1 << 40))
    lead = rng.choice(("", "", "Solve this step by step. ", "Please help me with a problem. "))
    start = rng.choice(("", "", "Let us go step by step. ", "We can work this out in steps. "))
    return [(lead + problem.question, start + problem.worked_answer)]


def number_rows(rng: Random) -> Turns:
    """A multiplication table or a number pattern."""
    base, count, first = rng.randrange(3, 20), rng.randrange(6, 11), rng.randrange(1, 30)
    if rng.random() < 0.5:
        products = "\n".join(f"{number} x {base} = {number * base}" for number in range(1, count + 1))
        asks = ("Write the multiplication table of {b} up to {c}.", "Show me the {b} times table up to {c}.")
        ask = say(rng, asks, b=base, c=count)
        return [(ask, f"Here is the table of {base}:\n\n{products}\n\nEach result is {base} more than the one before.")]
    numbers = [first + base * step for step in range(8)]
    asks = ("What are the next three numbers? {list}", "Continue this row with three numbers: {list}")
    answer = (
        f"The difference between neighbours is always {numbers[1]} - {numbers[0]} = {base}. So add {base} each time:"
        f" {numbers[4]} + {base} = {numbers[5]}, then {numbers[6]}, then {numbers[7]}. The next three numbers are"
        f" {row(numbers[5:])}."
    )
    return [(say(rng, asks, list=row(numbers[:5])), answer)]
