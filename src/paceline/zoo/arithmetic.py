"""Seeded word problems with worked answers, and the checker of an answer.

Every worked answer ends in "The answer is N."; knows nothing of chats or tokens.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from paceline.zoo import words
from paceline.zoo.tables import fill

_FINAL = re.compile(r"answer is:?\s*\**\s*\$?(-?\d[\d,]{0,99})", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d[\d,]{0,99}")
"""Of a hundred digits at most: a looping answer may have more than `int` takes."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, an answer worked out step by step, and the number it comes to."""

    question: str
    worked_answer: str
    answer: int


def word_problem(seed: int) -> Problem:
    """The word problem of a seed."""
    rng = Random(seed)
    question, steps, answer = rng.choice(MAKERS)(rng)
    worked = f"{' '.join(steps)} The answer is {answer}."
    return Problem(fill(rng, question, {}), fill(rng, worked, {}), answer)


def final_answer(text: str) -> int | None:
    """The number after the last "answer is", else the last number of the text, else None."""
    found = _FINAL.findall(text) or _NUMBER.findall(text)
    return int(found[-1].replace(",", "")) if found else None


def check_answer(problem: Problem, text: str) -> bool:
    """Whether the final answer of `text` is the problem's."""
    return final_answer(text) == problem.answer


Made = tuple[str, list[str], int]


def _name(rng: Random) -> tuple[str, dict[str, str]]:
    return words.person(rng)


def _buy_and_give(rng: Random) -> Made:
    (name, p), good = _name(rng), rng.choice(words.GOODS)
    has, more = rng.randrange(12, 90), rng.randrange(5, 60)
    gone = rng.randrange(3, has)
    verb = rng.choice(("gives away", "sells", "loses"))
    return (
        f"{name} has {has} {good}. {p['He']} [gets|finds|is given] {more} more and then {verb} {gone}."
        f" [How many {good} does {p['he']} have now|How many {good} are left]?",
        [
            f"{name} [starts with|has at first] {has} {good}.",
            f"After getting {more} more there are {has} + {more} = {has + more}.",
            f"Then {p['he']} {verb} {gone}, which leaves {has + more} - {gone} = {has + more - gone}.",
        ],
        has + more - gone,
    )


def _boxes(rng: Random) -> Made:
    (name, p), good, box = _name(rng), rng.choice(words.GOODS), rng.choice(words.BOXES)
    count, each, loose = rng.randrange(3, 13), rng.randrange(4, 25), rng.randrange(2, 20)
    total = count * each
    return (
        f"{name} packs {count} {box} with {each} {good} each. {loose} {good} do not fit and [stay on|lie on]"
        f" the table. How many {good} did {p['he']} have at first?",
        [
            f"[First count|Begin by counting] what is in the {box}: {count} x {each} = {total}.",
            f"Add the {loose} {good} on the table: {total} + {loose} = {total + loose}.",
        ],
        total + loose,
    )


def _price(rng: Random) -> Made:
    (name, p), (one, two) = _name(rng), rng.sample(words.GOODS, 2)
    n, price, m, price2 = (rng.randrange(2, 9) for _ in range(4))
    cost = n * price + m * price2
    paid = (cost // 10 + 1 + rng.randrange(3)) * 10
    return (
        f"{name} buys {n} {one} at {price} dollars each and {m} {two} at {price2} dollars each."
        f" {p['He']} pays with {paid} dollars. How much change does {p['he']} get?",
        [
            f"The {one} cost {n} x {price} = {n * price} dollars.",
            f"The {two} cost {m} x {price2} = {m * price2} dollars.",
            f"[Together|In all] that is {n * price} + {m * price2} = {cost} dollars.",
            f"The change is {paid} - {cost} = {paid - cost} dollars.",
        ],
        paid - cost,
    )


def _share(rng: Random) -> Made:
    (name, p), good = _name(rng), rng.choice(words.GOODS)
    friends, each, keep = rng.randrange(3, 10), rng.randrange(3, 20), rng.randrange(2, 15)
    total = friends * each + keep
    return (
        f"{name} has {total} {good}. {p['He']} keeps {keep} and shares the rest equally among"
        f" {friends} friends. How many {good} does each friend get?",
        [
            f"After keeping {keep}, there are {total} - {keep} = {total - keep} {good} to share.",
            f"[Divide|Split] them among {friends} friends: {total - keep} / {friends} = {each}.",
        ],
        each,
    )


def _speed(rng: Random) -> Made:
    name, other = words.place_name(rng), words.place_name(rng)
    what = rng.choice(("train", "bus", "truck", "cyclist", "ferry"))
    speed = rng.randrange(10, 31) if what in ("cyclist", "ferry") else rng.randrange(8, 19) * 5
    hours, rest = rng.randrange(2, 7), rng.randrange(5, 60)
    return (
        f"A {what} leaves {name} and travels at {speed} kilometres an hour for {hours} hours. Then"
        f" {rest} kilometres remain to {other}. [How far is it|What is the distance] from {name} to {other}?",
        [
            f"In {hours} hours the {what} covers {speed} x {hours} = {speed * hours} kilometres.",
            f"With the remaining {rest} kilometres the distance is"
            f" {speed * hours} + {rest} = {speed * hours + rest} kilometres.",
        ],
        speed * hours + rest,
    )


def _savings(rng: Random) -> Made:
    (name, p), thing = _name(rng), rng.choice(words.OBJECTS)
    weekly, weeks, has = rng.randrange(3, 20), rng.randrange(3, 15), rng.randrange(5, 60)
    price = has + weekly * weeks
    return (
        f"{name} wants {words.a(thing)} that costs {price} dollars. {p['He']} already has {has}"
        f" dollars and saves {weekly} dollars a week."
        f" [How many weeks does it take|For how many weeks must {p['he']} save]?",
        [
            f"{name} [still needs|lacks] {price} - {has} = {price - has} dollars.",
            f"At {weekly} dollars a week that takes {price - has} / {weekly} = {weeks} weeks.",
        ],
        weeks,
    )


def _ages(rng: Random) -> Made:
    (name, _), (other, _) = _name(rng), _name(rng)
    other = other if other != name else f"{name}'s cousin"
    age, times, years = rng.randrange(4, 15), rng.randrange(2, 5), rng.randrange(2, 12)
    then = age * times + years
    return (
        f"{name} is {age} years old. {other} is {times} times as old. How old will {other} be in {years} years?",
        [
            f"{other} is now {age} x {times} = {age * times} years old.",
            f"In {years} years that will be {age * times} + {years} = {then}.",
        ],
        then,
    )


def _area(rng: Random) -> Made:
    (name, p), plant = _name(rng), rng.choice(("carrots", "tulips", "beans", "strawberries", "leeks"))
    length, width, per = rng.randrange(3, 15), rng.randrange(2, 10), rng.randrange(2, 9)
    area = length * width
    return (
        f"{name} has a garden bed {length} metres long and {width} metres wide. On each square"
        f" metre {p['he']} plants {per} {plant}. [How many {plant} are there|How many {plant} does {p['he']} need]?",
        [
            f"The area is {length} x {width} = {area} square metres.",
            f"With {per} {plant} on each, there are {area} x {per} = {area * per} {plant}.",
        ],
        area * per,
    )


def _three_days(rng: Random) -> Made:
    (name, p), what = _name(rng), rng.choice(("pages", "kilometres", "lines", "rows", "letters"))
    first, more = rng.randrange(6, 40), rng.randrange(3, 15)
    second = first + more
    third = second * 2
    verb = {"pages": "reads", "kilometres": "cycles", "lines": "learns", "rows": "knits", "letters": "writes"}[what]
    return (
        f"On Monday {name} {verb} {first} {what}. On Tuesday {p['he']} {verb} {more} more than on"
        f" Monday, and on Wednesday twice as many as on Tuesday. How many {what} is that [altogether|in three days]?",
        [
            f"On Tuesday it is {first} + {more} = {second} {what}.",
            f"On Wednesday it is {second} x 2 = {third}.",
            f"Altogether: {first} + {second} + {third} = {first + second + third}.",
        ],
        first + second + third,
    )


def _work(rng: Random) -> Made:
    job, good = rng.choice(words.JOBS), rng.choice(words.GOODS)
    people, each, days = rng.randrange(2, 9), rng.randrange(3, 16), rng.randrange(2, 8)
    return (
        f"In one workshop there are {people} people. Each of them finishes {each} {good} a day."
        f" How many {good} does the {job} collect from them after {days} days?",
        [
            f"In one day they finish {people} x {each} = {people * each} {good}.",
            f"In {days} days it is {people * each} x {days} = {people * each * days}.",
        ],
        people * each * days,
    )


MAKERS: tuple[Callable[[Random], Made], ...] = (
    _buy_and_give,
    _boxes,
    _price,
    _share,
    _speed,
    _savings,
    _ages,
    _area,
    _three_days,
    _work,
)
