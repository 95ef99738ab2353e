"""All lives of one or two tasks: every order in which two workers, any number of sweepers and a broker that loses,
doubles and replays can take their steps, up to a bound on the tokens.

A step is one operation of the plain model, which is one transaction of the flow: what processes do at once is one order
or another of these. Any message that was ever sent may be delivered at any time, again and again, or never; any claim
that was ever granted may be used at any time, by a zombie, or never, as by the dead.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.model.plain.plain import Plain
from tests.model.plain.state import Refused

HOLDERS = ("w1", "w2")

Step = tuple[str, tuple[Any, ...], dict[str, Any]]
"""An operation of the plain model, its arguments and options."""
Claim = tuple[str, str, int]
"""Holder, task and token."""


@dataclass
class State:
    plain: Plain
    in_hand: frozenset[Claim] = frozenset()
    newest: dict[str, int] = field(default_factory=dict)
    """The newest token that was granted, by task."""
    way: tuple[Step, ...] = ()

    def key(self) -> Any:
        """Two states that are alike but for the time of the day."""
        now, tasks = self.plain.now, self.plain.tasks.values()
        leases = [
            (x.token, x.holder, max(0, x.due - now), x.waits, x.paused, min(x.dispatches, 2))
            if (x := task.lease)
            else None
            for task in tasks
        ]
        facts = [
            (task.outcome, task.fence, task.losses, task.retries, task.body, *sorted(task.steps)) for task in tasks
        ]
        projects = [(one.status, one.paused) for one in self.plain.projects.values()]
        return str((leases, facts, projects, sorted(set(self.plain.sent)), sorted(self.in_hand)))

    def after(self, step: Step) -> tuple[State, Any]:
        """And what the operation has said."""
        plain = copy.deepcopy(self.plain)
        said = take(plain, step)
        name, args, _ = step
        in_hand, newest = self.in_hand, self.newest
        if name == "claim" and said is not None:
            in_hand, newest = in_hand | {(args[0], args[1], said)}, {**newest, args[1]: said}
        elif name in USES_UP:
            in_hand -= {args}  # type: ignore[operator]
        return State(plain, in_hand, newest, (*self.way, step)), said


USES_UP = ("complete", "retry", "release", "lapse")


def take(side: Any, step: Step) -> Any:
    name, args, more = step
    side.room = {}
    try:
        return getattr(side, name)(*args, **more)
    except Refused as refused:
        return refused


def steps(state: State) -> Iterator[Step]:
    """All that can be next."""
    for task_id, token, _ in sorted(set(state.plain.sent)):
        for holder in HOLDERS:
            yield "claim", (holder, task_id, token), {}
    for one in sorted(state.in_hand):
        yield "complete", one, {"failed": False, "children": [], "owed": False}
        yield "complete", one, {"failed": True, "children": [], "owed": False}
        yield "release", one, {"delay": 0}
        yield "lapse", one, {}
        yield "step", one, {"name": "step"}
        yield "renew", (one[0], [one[1:]]), {}
        if state.plain.tasks[one[1]].retries < 1:
            yield "retry", one, {"body": "again", "delay": 2_000, "queue": "celery"}
    yield "dispatch", (), {}
    left = [task.lease.due - state.plain.now for task in state.plain.tasks.values() if task.lease]
    if any(one > 0 for one in left):
        yield "pass_time", (min(one for one in left if one > 0),), {}


def explore(begin: State, more_steps: Callable[[State], Iterator[Step]], tokens: int, check: Any) -> list[State]:
    """Every state that can be reached without a token above ``tokens``, each by a shortest way."""
    found = {begin.key(): begin}
    todo = deque([begin])
    while todo:
        state = todo.popleft()
        for step in (*steps(state), *more_steps(state)):
            after, said = state.after(step)
            check(state, step, after, said)
            if max(_token(after.plain, id_) for id_ in after.plain.tasks) <= tokens:
                key = after.key()
                if key not in found:
                    found[key] = after
                    todo.append(after)
    return list(found.values())


def _token(plain: Plain, task_id: str) -> int:
    task = plain.tasks[task_id]
    return task.fence if task.lease is None else task.lease.token


# --- what holds ----------------------------------------------------------------------------------------------------


def check_step(state: State, step: Step, after: State, said: Any) -> None:
    name, args, _ = step
    for task_id, before in state.plain.tasks.items():
        now = after.plain.tasks[task_id]
        assert before.outcome in (None, now.outcome), _told(
            after, f"{task_id} had ended {before.outcome}, now {now.outcome}"
        )
        assert (now.outcome is None) == (now.lease is not None), _told(
            after, f"{task_id} has ended and has a lease, or neither"
        )
        assert _token(after.plain, task_id) >= _token(state.plain, task_id), _told(
            after, f"the token of {task_id} fell"
        )
        ends = [token for token, (_, how) in now.runs.items() if how in ("succeeded", "failed")]
        assert len(ends) <= 1 and all(token == now.fence for token in ends), _told(
            after, f"{task_id} was ended by {ends}"
        )
    if name == "claim" and said is not None:
        assert said > state.newest.get(args[1], 0), _told(after, f"token {said} was granted before")
    if (name in (*USES_UP, "step") and said is not False and said is not None) or name in ("complete", "retry", "step"):
        accepted = not isinstance(said, Refused)
        assert not accepted or args[2] == state.newest[args[1]], _told(after, "a stale holder has written")
        assert accepted or _same(state, after), _told(after, "a refused write has changed something")
    if name == "dispatch":
        again, _ = after.after(step)
        assert _same(after, again), _told(after, "a second sweep found more to do")


def check_goes_on(state: State) -> None:
    """Whatever is lost from here on, and whoever is dead: a worker and a sweep bring all to its end, once resumed."""
    here = State(copy.deepcopy(state.plain), frozenset(), state.newest, state.way)
    take(here.plain, ("resume", ("p",), {}))
    for _ in range(40):
        alive = [task for task in here.plain.tasks.values() if task.lease]
        if not alive:
            return
        here.plain.sent.clear()
        goes = [task.lease.due for task in alive if task.lease and not task.lease.waits and not task.lease.paused]
        here.plain.now = max(here.plain.now, min(goes))
        take(here.plain, ("dispatch", (), {}))
        for task_id, token, _ in list(here.plain.sent):
            granted = here.plain.claim("w3", task_id, token)
            assert granted is not None, _told(state, f"the newest message of {task_id} was refused")
            here.plain.complete("w3", task_id, granted, failed=False, children=[], owed=False)
    raise AssertionError(_told(state, f"stranded: {[task.id for task in here.plain.tasks.values() if task.lease]}"))


def _same(state: State, after: State) -> bool:
    one, other = state.plain, after.plain
    return (one.tasks, one.projects, one.sent) == (other.tasks, other.projects, other.sent)


def _told(state: State, what: str) -> str:
    return "\n".join([what, "after", *(f"  {name}{args}" for name, args, _ in state.way)])
