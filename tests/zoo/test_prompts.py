"""The kept prompts: held out, complete and small."""

import ast
from collections import Counter

import pytest

from paceline.zoo.corpus import HELDOUT_FIRST_SEED, dialogue_document, module_document, story_document
from paceline.zoo.documents import split_of
from paceline.zoo.prompts import PROMPTS_FILE, SCENARIOS, load_prompts

PROMPTS = load_prompts()


def test_there_are_24_prompts_of_each_scenario():
    assert Counter(prompt["scenario"] for prompt in PROMPTS) == dict.fromkeys(SCENARIOS, 24)
    assert len({prompt["id"] for prompt in PROMPTS}) == len(PROMPTS)
    assert len(PROMPTS_FILE.read_bytes()) < 150_000


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_scenario_can_be_loaded(scenario):
    assert {prompt["scenario"] for prompt in load_prompts(scenario)} == {scenario}


def test_generated_prompts_are_held_out_and_fresh():
    for prompt in load_prompts("long_text"):
        seed = int(prompt["source"].split(":")[1])
        assert seed >= HELDOUT_FIRST_SEED
        assert prompt["prompt"] + prompt["reference"] == story_document(seed, "heldout").text
    for prompt in load_prompts("dialogue"):
        seed = int(prompt["source"].split(":")[1])
        assert seed >= HELDOUT_FIRST_SEED
        answer = {"role": "assistant", "content": prompt["reference"]}
        assert (*prompt["messages"], answer) == dialogue_document(seed, "heldout").messages


def test_dialogues_end_with_the_user():
    assert {prompt["messages"][-1]["role"] for prompt in load_prompts("dialogue")} == {"user"}


def test_code_prompts_are_held_out_functions_cut_between_statements():
    for prompt in load_prompts("code")[2::3]:
        assert split_of(prompt["source"].split(":")[0]) == "heldout"
        whole = ast.parse(prompt["prompt"] + prompt["reference"]).body[0]
        assert isinstance(whole, ast.FunctionDef)
        assert ast.get_docstring(ast.parse(prompt["prompt"]).body[0])
        assert len(prompt["reference"]) >= 200


def test_two_of_three_code_prompts_are_held_out_modules_cut_after_a_method():
    for prompt in (prompt for i, prompt in enumerate(load_prompts("code")) if i % 3 != 2):
        seed = int(prompt["source"].split(":")[1])
        assert seed >= HELDOUT_FIRST_SEED
        assert prompt["prompt"] + prompt["reference"] == module_document(seed, "heldout").text
        ast.parse(prompt["prompt"])
