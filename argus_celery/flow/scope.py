"""Where in its task a run is, and how its steps are named there.

A step is known by its name, never by its position. Inside a step or an item of ``each`` names begin with its path. The
same name again gets a number; a call that fails gives its name back, with all that was named inside it, so that a
repeat in this process asks for the same steps as a repeat in another. What asks for the name with other arguments is
no repeat, and is refused: a later run, which does not see the failure, would take the one for the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from argus_celery.errors import BadStep
from argus_celery.flow import naming
from argus_celery.flow.given import Given

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


Function = tuple[str, str, int]
"""Module, name and line of a function (``identity``)."""


@dataclass(frozen=True, slots=True)
class Call:
    """What takes a name."""

    place: str
    """The path of the scope in which it is called."""
    function: Function
    given: Given | None = None
    """What tells it from a call for another thing; None if its name does."""


@dataclass(frozen=True, slots=True)
class Child:
    """A call of another task."""

    call: Any
    occurrence: int
    given: Given


@dataclass(eq=False)
class Scope:
    """A stretch of the body: all of it, a step, an item of ``each``, or a transaction."""

    names: Names
    path: str = ""
    in_step: bool = False
    """Is a step of the user's running, somewhere around here?"""
    connection: Connection | None = None
    """That of the transaction around here: what is recorded here commits with it."""
    taken: dict[str, Call | None] = field(default_factory=dict)
    """What was named in here; None is what is never asked for again but from its beginning."""
    failed: dict[str, str] = field(default_factory=dict)
    """Base → place of the calls in here that have failed."""
    recorded: dict[str, bytes | None] = field(default_factory=dict)
    """What was recorded in here, for the case that it is asked for again in this run."""
    transaction: Scope | None = None
    """That of the transaction around here, or of the savepoint."""
    kept: dict[str, bytes | None] = field(default_factory=dict)
    """Of a transaction: what calls inside that failed have recorded, nevertheless."""
    calls: Counter[Any] = field(default_factory=Counter)
    """How often each call of another task was made in here (``hooks.children``)."""
    made: list[Child] = field(default_factory=list)
    """Of a transaction: what it has called so."""
    undone: list[Child] = field(default_factory=list)
    """Calls of transactions in here that were rolled back: who makes the same again repeats them."""
    around: Scope | None = None
    """Of an item: where its loop was when the item began."""

    @property
    def base(self) -> Scope:
        """The same without the items of loops."""
        return self if self.around is None else self.around.base

    def occurrence(self, call: Any, what: Callable[[], Given]) -> int:
        """How many calls like this were made in here with this one; ``what`` tells it from one that was rolled back."""
        if not self.undone and self.transaction is not self:
            self.calls[call] += 1
            return self.calls[call]
        given = what()
        child = next((one for one in self.undone if one.call == call and one.given.is_repeated_by(given)), None)
        if child is None:
            self.calls[call] += 1
            child = Child(call, self.calls[call], given)
        else:
            self.undone.remove(child)
        if self.transaction is self:
            self.made.append(child)
        return child.occurrence

    def within(self) -> Scope:
        """A narrower one of the same path."""
        return replace(self, taken={}, failed={}, made=[], recorded={}, around=None)

    def step(self, path: str) -> Scope:
        """That of a step's function, each time it is called."""
        return Scope(self.names, path, True, self.connection, transaction=self.transaction)

    def item(self, path: str) -> Scope:
        """That of an item: with all that is around it, it is given back; what is in the body itself is never."""
        if self is self.names.root:
            return Scope(self.names, path)
        return replace(self, path=path, calls=Counter(), undone=[])


_here: ContextVar[Scope | None] = ContextVar("argus_scope", default=None)


class Names:
    """The names that one run has taken. Threads of the body may take them at once."""

    def __init__(self) -> None:
        self.root = Scope(self)
        self._taken: dict[str, tuple[str, Function]] = {}
        """Path → the same without its number, and the function it was taken for."""
        self._next: dict[str, int] = {}
        self._failed: dict[str, list[tuple[str, Call]]] = {}
        """Base → path of each call that has failed, and the call."""
        self.refused: str | None = None
        """Why a call was: the body is not to end well, though it may have gone on."""
        self._lock = Lock()

    @property
    def here(self) -> Scope:
        """Where the caller is. A thread may bear what an earlier run has left in its context."""
        scope = _here.get()
        return scope if scope is not None and scope.names is self else self.root

    def take(self, name: str, call: Call, scope: Scope | None = None) -> str:
        """The path of this call, whose name is one of ``naming``.

        Raises ``BadStep`` if another function has it, or a call for another thing that has failed.
        """
        scope = scope or self.here
        base = naming.inside(scope.path, name)
        with self._lock:
            self._check_function(base, call.function)
            path = self._given_back(base, call) or self._free(base)
            self._taken[path] = (base, call.function)
            if scope is not self.root:
                scope.taken[path] = call
        return path

    def _check_function(self, base: str, function: Function) -> None:
        before = self._taken[base][1] if base in self._taken else None
        if before is None and self._failed.get(base):
            before = self._failed[base][0][1].function
        if before is not None and before != function:
            raise BadStep(
                f"the step {base!r} has called {told(before)} in this run, and now {told(function)}:"
                " give each its own name"
            )

    def _given_back(self, base: str, call: Call) -> str | None:
        """The path of the call that has failed, and of which this is the repeat."""
        failed = self._failed.get(base)
        if not failed:
            return None
        for at, (path, before) in enumerate(failed):
            if call.given is None or (before.given is not None and before.given.is_repeated_by(call.given)):
                del failed[at]
                return path
        self.refused = (
            f"the step {base!r} was called and not done, and is called now with other arguments: is it another try, or"
            ' for another thing? A later run could not tell: let its name say that, as by f"fetch {url}" or @step(key=)'
        )
        raise BadStep(self.refused)

    def _free(self, base: str) -> str:
        number = self._next.get(base, 1)
        while (path := naming.numbered(base, number)) in self._taken:
            number += 1
        self._next[base] = number + 1
        return path

    def give_back(self, scope: Scope, around: Scope) -> None:
        """What was named in here may be asked for again: what is inside of what failed from its beginning."""
        with self._lock:
            for path, call in scope.taken.items():
                base, _ = self._taken.pop(path, (path, None))
                if call is not None and call.place == around.path:
                    if call.given is not None:
                        call.given.failed()
                    self._failed.setdefault(base, []).append((path, call))
                    around.failed[base] = call.place
                else:
                    self._forget(base)
            for base, place in scope.failed.items():
                if place == around.path:
                    around.failed[base] = place
                else:
                    self._forget(base)
            scope.taken.clear()

    def _forget(self, base: str) -> None:
        self._next.pop(base, None)
        self._failed.pop(base, None)

    def keep(self, scope: Scope, around: Scope) -> None:
        """What was named in here is given back together with what is around it; the body itself never is."""
        if around is not self.root:
            with self._lock:
                for path, call in scope.taken.items():
                    around.taken[path] = call if call is not None and call.place == around.path else None
                around.failed |= scope.failed
            around.recorded |= scope.recorded

    def note(self, scope: Scope, path: str) -> None:
        """This path of an item is given back with the scope."""
        with self._lock:
            scope.taken[path] = None


def enter(scope: Scope) -> Any:
    """From here on the caller is in this scope. Hand the answer to ``leave``."""
    return _here.set(scope)


def leave(token: Any) -> None:
    _here.reset(token)


def begin(item: Scope) -> None:
    """Go into an item, until ``end``."""
    item.around = item.names.here
    _here.set(item)


def end(item: Scope) -> None:
    """Go to where its loop was, if the caller is in the item, or in that of a loop inside which was not left."""
    scope: Scope | None = item.names.here
    while scope is not None and scope is not item:
        scope = scope.around
    if scope is not None:
        _here.set(item.around)


def identity(function: Any) -> Function:
    """What tells one function from another: not the object, which a body may make anew at each call."""
    function = inmost(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    code = getattr(function, "__code__", None)
    return named.__module__ or "", named.__qualname__, code.co_firstlineno if code is not None else 0


def inmost(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


def told(function: Function) -> str:
    module, name, line = function
    return f"{module}.{name}" + (f" of line {line}" if "<lambda>" in name else "")
