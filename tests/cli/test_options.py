"""The options that commands share: a word that is none of theirs is refused at the option, with the words that are."""

import pytest

from scaffold.cli.options import (
    FORMATS,
    check_choice,
    check_format,
    check_policy,
    completing,
    proofs_wanted,
)
from scaffold.errors import ScaffoldError
from scaffold.workspace import POLICIES


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_its_name(policy: str) -> None:
    assert check_policy(policy) == policy


@pytest.mark.parametrize(
    ("given", "hint"), [("merg", "merge"), ("xyz", "one of: " + ", ".join(POLICIES))]
)
def test_another_policy_is_refused_at_its_option(given: str, hint: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        check_policy(given)
    assert f"--on-conflict: unknown value '{given}'" in str(caught.value)
    assert hint in str(caught.value)


def test_a_format_is_one_of_those_that_the_command_has() -> None:
    check_format("json")
    check_format("sarif", (*FORMATS, "sarif"))
    with pytest.raises(ScaffoldError, match="--format: unknown value 'sarif'"):
        check_format("sarif")


def test_a_choice_is_looked_for_in_words_that_come_once() -> None:
    assert not check_choice("--of", "b", iter("ab"))
    (problem,) = check_choice("--of", "c", iter("ab"))
    assert problem.hint == "one of: a, b"


def test_a_shell_is_offered_every_word() -> None:
    assert completing(iter(POLICIES))() == list(POLICIES)


def test_without_proofs_there_is_no_run() -> None:
    assert proofs_wanted(None, None, False) is None
    with pytest.raises(
        ScaffoldError, match="--prove and --no-verify exclude each other"
    ):
        proofs_wanted(None, None, False, every=True)
