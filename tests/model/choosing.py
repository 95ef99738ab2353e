"""Which operation comes next in a life: any that makes sense, now and then, and rather one that never succeeded yet."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.model.plain.plain import Plain
from tests.model.plain.state import NOBODY, QUEUE

QUEUES = {"alpha": "celery", "beta": "slow"}
"""One for each project: how two share a queue is tested elsewhere, and is not decided by the specification alone."""
HOLDERS = ("w1", "w2")
EVENTS = ("e1", "e2", "e3")


@dataclass(frozen=True)
class Operation:
    name: str
    args: tuple[Any, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)
    broker: str | None = None

    def __str__(self) -> str:
        told = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.more.items() if value)]
        return f"{self.name}({', '.join(told)})" + (f" while the broker {self.broker}" if self.broker else "")


Held = tuple[str, str, int]
"""Holder, task and token of a claim that a worker has in hand, be it good or a zombie's."""


class Life:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.in_hand: list[Held] = []
        self.tasks = 0
        self.bodies = 0
        self.succeeded: Counter[str] = Counter()

    def choose(self, plain: Plain) -> Operation:
        weights = {name: weight * (1 if self.succeeded[name] else 2) for name, weight in OPERATIONS.items()}
        while True:
            (name,) = self.chance.choices(list(weights), list(weights.values()))
            make: Callable[[Plain], Operation | None] = getattr(self, f"_{name}")
            operation = make(plain)
            if operation is not None:
                return operation

    def note(self, operation: Operation, answer: Any) -> None:
        if operation.name == "claim" and answer is not None:
            holder, task_id, _ = operation.args
            self.in_hand.append((holder, task_id, answer))
        elif operation.args[:3] in self.in_hand and operation.name in USES_UP:
            self.in_hand.remove(operation.args[:3])  # type: ignore[arg-type]

        self.succeeded[operation.name] += self._is_success(operation, answer)

    def _is_success(self, operation: Operation, answer: Any) -> bool:
        """It did what it is for: no error, no refusal, and not nothing."""
        if operation.name in ("complete", "retry", "wait", "step", "pause", "resume", "close", "reopen", "revoke"):
            return answer is None
        if operation.name in ("dispatch", "sweep", "mend", "prune", "pass_time"):
            return True
        if operation.name == "renew":
            return bool(answer[0])
        if operation.name == "enqueue":
            return answer[1] is True
        return (bool(answer) and not isinstance(answer, str)) or (operation.name == "lapse" and answer is not None)

    # --- producers -------------------------------------------------------------------------------------------------

    def _enqueue(self, plain: Plain) -> Operation:
        pick, project = self.chance.choice, self.chance.choice(list(QUEUES))
        parents = [task.id for task in plain.tasks.values() if task.project == project]
        more = {
            "key": pick([None, None, None, "k1", "k2"]),
            "unique": pick([None, None, None, "u1"]),
            "limits": pick([(), (), (), ("narrow",), ("wide",), ("narrow", "wide")]),
            "delay": pick([0, 0, 0, 0, 2_000, 20_000]),
            "expires": pick([None, None, None, 5_000]),
            "after": tuple(sorted({pick(parents) for _ in range(pick([0, 0, 1, 2]))} if parents else ())),
            "regardless": pick([False, True]),
        }
        self.tasks += 1
        return Operation("enqueue", (f"t{self.tasks:03}", project, QUEUES[project]), more, self._fault())

    def _fault(self) -> str | None:
        return self.chance.choice([None, None, None, None, "refuses", "loses"])

    # --- workers ---------------------------------------------------------------------------------------------------

    def _claim(self, plain: Plain) -> Operation | None:
        good = [one for one in plain.sent if self._is_good(plain, one)]
        choice = good if good and self.chance.random() < 0.8 else plain.sent
        if not choice:
            return None
        task_id, token, _ = self.chance.choice(choice)
        return Operation("claim", (self.chance.choice(HOLDERS), task_id, token))

    def _is_good(self, plain: Plain, message: tuple[str, int, str]) -> bool:
        task = plain.tasks.get(message[0])
        return (
            task is not None and task.lease is not None and (task.lease.token, task.lease.holder) == (message[1], QUEUE)
        )

    def _renew(self, plain: Plain) -> Operation | None:
        holder = self.chance.choice(HOLDERS)
        mine = sorted(
            (task_id, token) for by, task_id, token in self.in_hand if by == holder and task_id in plain.tasks
        )
        return Operation("renew", (holder, mine)) if mine else None

    def _complete(self, plain: Plain) -> Operation | None:
        pick, children = self.chance.choice, []
        for _ in range(pick([0, 0, 1, 2])):
            self.tasks += 1
            children.append(f"t{self.tasks:03}")
        more = {"failed": pick([False, False, True]), "children": children, "owed": pick([False] * 9 + [True])}
        return self._of_a_run(plain, "complete", more)

    def _retry(self, plain: Plain) -> Operation | None:
        self.bodies += 1
        held = self._any(plain)
        if held is None:
            return None
        own = QUEUES.get(plain.tasks[held[1]].project, "celery")
        queue = self.chance.choice([own, f"other {own}"])
        more = {"body": f"body {self.bodies}", "delay": self.chance.choice([0, 0, 2_000]), "queue": queue}
        return Operation("retry", held, more, self._fault())

    def _release(self, plain: Plain) -> Operation | None:
        return self._of_a_run(plain, "release", {"delay": self.chance.choice([0, 0, 2_000])})

    def _lapse(self, plain: Plain) -> Operation | None:
        return self._of_a_run(plain, "lapse", {})

    def _wait(self, plain: Plain) -> Operation | None:
        event = self.chance.choice([None, *EVENTS])
        until = self.chance.choice([None, 2_000, 20_000]) if event else 2_000
        return self._of_a_run(plain, "wait", {"event": event, "until": None if until is None else plain.now + until})

    def _step(self, plain: Plain) -> Operation | None:
        return self._of_a_run(plain, "step", {"name": self.chance.choice(["one", "two"])}, fault=False)

    def _of_a_run(self, plain: Plain, name: str, more: dict[str, Any], *, fault: bool = True) -> Operation | None:
        held = self._any(plain)
        return None if held is None else Operation(name, held, more, self._fault() if fault else None)

    def _any(self, plain: Plain) -> Held | None:
        """Rather one that still stands."""
        known = [one for one in self.in_hand if one[1] in plain.tasks]
        good = [
            one
            for one in known
            if (lease := plain.tasks[one[1]].lease) and (one[0], one[2]) == (lease.holder, lease.token)
        ]
        choice = good if good and self.chance.random() < 0.8 else known
        return self.chance.choice(choice) if choice else None

    # --- sweepers, time and people -----------------------------------------------------------------------------------

    def _dispatch(self, plain: Plain) -> Operation:
        return Operation("dispatch", broker=self._fault())

    def _sweep(self, plain: Plain) -> Operation:
        return Operation("sweep")

    def _mend(self, plain: Plain) -> Operation:
        return Operation("mend")

    def _pay_debts(self, plain: Plain) -> Operation | None:
        return Operation("pay_debts") if any(task.owes for task in plain.tasks.values()) else None

    def _prune(self, plain: Plain) -> Operation:
        return Operation("prune")

    def _pass_time(self, plain: Plain) -> Operation:
        return Operation("pass_time", (self.chance.choice([500, 2_500, 7_000, 40_000]),))

    def _tell(self, plain: Plain) -> Operation:
        return Operation("tell", (self._project(), self.chance.choice(EVENTS)), {}, self._fault())

    def _pause(self, plain: Plain) -> Operation:
        return Operation("pause", (self._project(),), {"stop": self.chance.random() < 0.3})

    def _resume(self, plain: Plain) -> Operation | None:
        paused = [name for name, project in plain.projects.items() if project.paused]
        return Operation("resume", (self.chance.choice(paused),)) if paused else None

    def _close(self, plain: Plain) -> Operation:
        return Operation("close", (self._project(),))

    def _reopen(self, plain: Plain) -> Operation | None:
        shut = [name for name, project in plain.projects.items() if project.status != "open"]
        return Operation("reopen", (self.chance.choice(shut),)) if shut else None

    def _cancel(self, plain: Plain) -> Operation:
        return Operation("cancel", (self._project(),))

    def _revoke(self, plain: Plain) -> Operation:
        alive = [task.id for task in plain.tasks.values() if task.lease and task.lease.holder != NOBODY]
        ahead = f"t{self.tasks + 1:03}"
        return Operation("revoke", ([self.chance.choice([ahead, *alive, *plain.tasks])],))

    def _retry_failed(self, plain: Plain) -> Operation:
        return Operation("retry_failed", (self._project(),))

    def _project(self) -> str:
        return self.chance.choice(list(QUEUES))


OPERATIONS = {
    "enqueue": 20, "claim": 20, "renew": 3, "complete": 10, "retry": 4, "release": 3, "lapse": 3, "wait": 5, "step": 3,
    "dispatch": 8, "sweep": 3, "mend": 1, "pay_debts": 2, "prune": 1, "pass_time": 6, "tell": 4, "pause": 2,
    "resume": 4, "close": 1, "reopen": 4, "cancel": 1, "revoke": 2, "retry_failed": 4,
}  # fmt: skip
"""How often each is chosen."""
USES_UP = ("complete", "retry", "release", "lapse", "wait")
