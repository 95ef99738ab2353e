"""The judge: what was lost, doubled, fenced in vain, early or wrong. Pure; believes the ledger before the store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tests.chaos.evidence import Evidence
from tests.chaos.progress import DONE
from tests.faults.ledger import Line

BEGUN = ("run", "start", "try")
"""What a body notes first."""
ENDED = ("success", "failure", "dead")
"""What is told once a task has ended, after the commit."""
EARLY = 0.1
"""Seconds by which clocks that are read one after the other may differ."""


@dataclass(frozen=True, slots=True)
class Violation:
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def judge(evidence: Evidence) -> list[Violation]:
    case = Case(evidence)
    rules = (lost, doubled, fallen, fenced_in_vain, early, wrong, workers)
    return [Violation(rule.__name__.replace("_", " "), text) for rule in rules for text in rule(case)]


@dataclass(frozen=True)
class Case:
    """The evidence, as the rules look things up in it."""

    evidence: Evidence

    @cached_property
    def of_tag(self) -> dict[str, list[Line]]:
        """What bodies noted."""
        return self._by("tag", (*BEGUN, *DONE))

    @cached_property
    def of_task(self) -> dict[str, list[Line]]:
        return self._by("task_id", (*BEGUN, *DONE))

    @cached_property
    def claims(self) -> dict[str, list[Line]]:
        return self._by("task_id", ("claimed",))

    @cached_property
    def endings(self) -> dict[str, list[Line]]:
        return self._by("task_id", ENDED)

    @cached_property
    def tokens_of_effects(self) -> dict[str, list[int]]:
        found = defaultdict(list)
        for tag, token in self.evidence.effects:
            found[tag].append(token)
        return found

    def ids(self, tag: str) -> list[str]:
        """The tasks that ran under this tag; if none did, the one that bears it as its id."""
        ran = list(dict.fromkeys(line.task_id for line in self.of_tag.get(tag, ())))
        return ran or [tag]

    def _by(self, what: str, events: tuple[str, ...]) -> dict[str, list[Line]]:
        found = defaultdict(list)
        for line in self.evidence.lines:
            if line.event in events:
                found[getattr(line, what)].append(line)
        return found


def lost(case: Case) -> Iterator[str]:
    """Every accepted task has ended, and what is said to have succeeded was really done."""
    for one, _ in case.evidence.expected:
        rows = [row for task in case.ids(one.tag) if (row := case.evidence.rows.get(task)) is not None]
        if not rows:
            yield f"{one.tag} is not in the store"
        elif any(row.outcome is None for row in rows):
            yield f"{one.tag} has not ended"
        elif one.outcome == "succeeded" and not any(line.event in DONE for line in case.of_tag.get(one.tag, ())):
            yield f"{one.tag} is {rows[0].outcome} and was never done"
    expected = {task for one, _ in case.evidence.expected for task in case.ids(one.tag)}
    for task, row in case.evidence.rows.items():
        if row.outcome is None and task not in expected:
            yield f"{task} has not ended"


def doubled(case: Case) -> Iterator[str]:
    """Each piece of work is one task, and each task ends once."""
    for tag, lines in case.of_tag.items():
        tasks = {line.task_id for line in lines}
        if len(tasks) > 1:
            yield f"{tag} ran as {len(tasks)} tasks: {', '.join(sorted(tasks))}"
    for task, lines in case.endings.items():
        told = Counter(line.event for line in lines)
        # A dead letter is told as a failure too.
        if max(told.values()) > 1 or (told["success"] and len(told) > 1):
            yield f"{task} ended {len(lines)} times: {', '.join(line.event for line in lines)}"
    for task, row in case.evidence.rows.items():
        if row.endings > 1:
            yield f"{task} was ended by {row.endings} runs"


def fallen(case: Case) -> Iterator[str]:
    """Tokens rise, from run to run, claim to claim and effect to effect, and no claim is above the last."""
    for task, lines in case.of_task.items():
        begun = [line for line in lines if line.event in BEGUN]
        yield from _twice(f"{task} ran", begun)
        for before, after in pairwise(begun):
            # A process that was stopped between its look at the lease and its first line may be late with that line.
            if after.token < before.token and after.pid not in case.evidence.stopped:
                yield f"{task} ran under {after.token} after {before.token}"
    for task, claims in case.claims.items():
        yield from _twice(f"{task} was claimed", claims)
        row = case.evidence.rows.get(task)
        newest = max(line.token for line in claims)
        if row is not None and row.outcome is not None and row.fence < newest:
            yield f"{task} was ended by {row.fence}, and {newest} had been granted"
    for tag, tokens in case.tokens_of_effects.items():
        if any(after <= before for before, after in pairwise(tokens)):
            yield f"effects of {tag} were written under {tokens}"


def _twice(what: str, lines: list[Line]) -> Iterator[str]:
    for token, count in Counter(line.token for line in lines).items():
        if count > 1:
            yield f"{what} {count} times under {token}"


def fenced_in_vain(case: Case) -> Iterator[str]:
    """What may be written once is written once."""
    for one, _ in case.evidence.expected:
        for tag in one.effects:
            tokens = case.tokens_of_effects.get(tag, [])
            if len(tokens) != 1:
                yield f"{len(tokens)} rows of {tag}, written under {tokens}"


def early(case: Case) -> Iterator[str]:
    for one, sent in case.evidence.expected:
        if one.delay:
            for line in case.of_tag.get(one.tag, ()):
                if line.clock < sent + one.delay - EARLY:
                    yield f"{one.tag} ran {sent + one.delay - line.clock:.2f} s too early"
        begun = [line.clock for line in case.of_tag.get(one.tag, ())]
        for tag in one.after if begun else ():
            done = [line.clock for line in case.of_tag.get(tag, ()) if line.event in DONE]
            if not done or min(begun) < min(done):
                yield f"{one.tag} ran before {tag} was done"


def wrong(case: Case) -> Iterator[str]:
    """Another outcome, or another value, than the work has."""
    for one, _ in case.evidence.expected:
        for task in case.ids(one.tag):
            row = case.evidence.rows.get(task)
            if row is not None and row.outcome not in (None, one.outcome):
                yield f"{one.tag} is {row.outcome}, not {one.outcome}"
        if one.outcome == "cancelled" and one.tag in case.of_tag:
            yield f"{one.tag} ran, and had been revoked before"
        for line in case.of_tag.get(one.tag, ()):
            if line.event in DONE and one.value is not None and line.detail != one.value:
                yield f"{one.tag} came to {line.detail!r}, not {one.value!r}"
    if case.evidence.broken:
        yield case.evidence.broken


def workers(case: Case) -> Iterator[str]:
    """Only faults end a process, and in the end every worker takes tasks."""
    yield from case.evidence.died
    for name in case.evidence.silent:
        yield f"{name} takes no tasks any more"
