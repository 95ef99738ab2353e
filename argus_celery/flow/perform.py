"""Perform: one call of a step, from its name to its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from argus_celery.errors import BadStep
from argus_celery.flow import naming, scope, trying
from argus_celery.flow.awaited import Awaited
from argus_celery.flow.given import Given
from argus_celery.flow.off_loop import off_loop
from argus_celery.flow.scope import Call, Scope
from argus_celery.flow.step import Steps
from argus_celery.flow.trying import StepOptions, Trying


def run(
    steps: Steps | None,
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: StepOptions | None = None,
    key: str | None = None,
) -> Any:
    """The value of this step: read, if an earlier run has left it; else the function is called and its value kept.

    Of a coroutine function, what is to be awaited for it. Its name is taken now, in the order of the calls.
    """
    if not callable(function):
        raise BadStep(f"the step {name!r} needs a function and then its arguments, not {function!r:.100}")
    if steps is None:
        return function(*args, **kwargs)
    if options is None:
        options, function = trying.options_of(function)
    call = _Call(steps, naming.step(name, key), function, options, args, kwargs, named=key is not None)
    return call.to_await() if trying.is_async(function) else call.done()


class _Call:
    """One call of a step, from the name to the value."""

    def __init__(
        self,
        steps: Steps,
        name: str,
        function: Callable[..., Any],
        options: StepOptions,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        named: bool,
    ) -> None:
        self.steps = steps
        self.function, self.args, self.kwargs = function, args, kwargs
        self.around = steps.names.here
        self.scope = self.around.within()
        what = None if named else Given(function, args, kwargs)
        self.path = steps.names.take(name, Call(self.scope.path, scope.identity(function), what), self.scope)
        self.name = naming.row(self.path)
        self.trying = Trying(steps.rt, steps.claim, steps.lost, self.name, options)

    def done(self) -> Any:
        steps = self.steps
        with steps.inside(self.around, self.scope):
            if steps.knows(self.name):
                return steps.read(self.name)
            return steps.record(self.name, self.trying.call(self._once))

    def to_await(self) -> Awaited:
        steps = self.steps
        given_back = partial(steps.names.give_back, self.scope, self.around)
        return Awaited(f"the step {self.name!r}", steps.unawaited, self._awaited, given_back)

    async def _awaited(self) -> Any:
        steps = self.steps
        with steps.inside(self.around, self.scope):
            if not steps.is_loaded:
                await off_loop(steps.load)
            if steps.knows(self.name):
                return await off_loop(partial(steps.read, self.name))
            value = await self.trying.call_async(self._once_async)
            return await off_loop(partial(steps.record, self.name, value))

    def _once(self) -> Any:
        self._begins()
        with self._inside():
            value = self.function(*self.args, **self.kwargs)
            trying.refuse_awaitable(self.name, value)
            return value

    async def _once_async(self) -> Any:
        self._begins()
        with self._inside():
            return await self.function(*self.args, **self.kwargs)

    def _begins(self) -> None:
        """Each try is refused where the run does nothing any more."""
        self.steps.host.begins(f"the step {self.name!r}")

    def _inside(self) -> AbstractContextManager[Scope]:
        """Each try has the names of the one before."""
        return self.steps.inside(self.scope, self.scope.step(self.path))
