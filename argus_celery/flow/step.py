"""Step: a named piece of a task whose value is kept, so that a later run reads it instead of doing it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event, Lock, get_ident
from typing import TYPE_CHECKING, Any, Protocol

from argus_celery.errors import BadStep, BadTransaction, LeaseLost, StoreUnavailable
from argus_celery.flow import complete, naming, points, scope
from argus_celery.flow import transaction as transactions
from argus_celery.flow.checks import check_size
from argus_celery.flow.outage import wait_out
from argus_celery.flow.pieces import pieces
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.scope import Names, Scope
from argus_celery.records import FIRST_TOKEN, Claim
from argus_celery.store import steps
from argus_celery.store.engine import DuplicateRow

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def record(rt: Runtime, claim: Claim, name: str, value: bytes | None, lost: Event | None = None) -> None:
    """Keep the value of a step, in one statement under the claim.

    Waits while the store is away, until ``lost`` is set. Raises ``LeaseLost``, with nothing written, if the claim is
    not held any more.
    """
    record_all(rt, claim, {name: value}, lost)


def record_all(rt: Runtime, claim: Claim, rows: Mapping[str, bytes | None], lost: Event | None = None) -> None:
    """The same of several: all or none of each two hundred."""
    for some in pieces(rows.items(), steps.AT_ONCE):
        _record(rt, claim, dict(some), lost)


def _record(rt: Runtime, claim: Claim, rows: Mapping[str, bytes | None], lost: Event | None) -> None:
    def write() -> bool:
        try:
            return rt.store.statement(lambda connection: steps.insert(rt.store, connection, claim, rows))
        except DuplicateRow:
            # A commit whose answer was lost is no refusal.
            if rt.store.statement(lambda connection: steps.are_mine(connection, claim, rows)):
                return True
            raise

    try:
        written = wait_out(write, lost.is_set if lost is not None else None)
    except StoreUnavailable:
        written = False  # the store did not come back while the lease could be trusted
    if not written:
        raise complete.lost(claim)


def record_by(rt: Runtime, connection: Connection, claim: Claim, rows: Mapping[str, bytes | None]) -> None:
    """The same in the transaction of this connection."""
    for some in pieces(rows.items(), steps.AT_ONCE):
        if not steps.insert(rt.store, connection, claim, dict(some)):
            raise complete.lost(claim)


@dataclass(frozen=True)
class Codec:
    """How values are kept: as results are."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


class Host(Protocol):
    """The run whose steps they are."""

    def begins(self, what: str) -> None:
        """This is about to be done: raises if nothing more may be."""

    def check_open(self, what: str) -> None:
        """Raise ``NoClaim`` if the caller has outlived the run."""

    def progress(self) -> None:
        """Something was finished."""


class Steps:
    """The steps of one run: those that earlier runs have left, and those it records."""

    def __init__(self, rt: Runtime, claim: Claim, lost: Event, codec: Codec, host: Host) -> None:
        self.rt, self.claim, self.lost, self.codec, self.host = rt, claim, lost, codec, host
        self.unawaited: dict[object, str] = {}
        """Steps and waits that coroutines have called and not awaited yet."""
        self.names = Names()
        self._flushing = Lock()
        self.unwritten: dict[str, Scope | None] = {}
        """Path → transaction around, of each finished item of ``each`` that is to be written with others."""
        self.in_transaction: set[int] = set()
        """The threads in which a transaction of this run is open."""
        # Nobody was granted this task before its first run.
        self._known: dict[str, bytes | None] | None = {} if claim.token == FIRST_TOKEN + 1 else None
        self._learned = 0
        """How often something was, that a reading under way may not have met."""
        self._knowing = Lock()

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def is_loaded(self) -> bool:
        return self._known is not None

    def load(self) -> dict[str, bytes | None]:
        """What is known, read once; and again where this run cannot be sure what it has written."""
        while (known := self._known) is None:
            learned = self._learned
            read: dict[str, bytes | None] = self._ask(lambda connection: steps.names(connection, self.claim.task_id))
            if self.names.here.connection is not None:
                return read  # it may yet be rolled back
            with self._knowing:
                if self._known is None and self._learned == learned:
                    self._known = read
        return known

    def knows(self, name: str) -> bool:
        return name in self._kept or name in self.load()

    def read(self, name: str) -> Any:
        """The value of a step that is known."""
        data = self.raw(name)
        return None if data is None else self._decoded(name, data)

    def raw(self, name: str) -> bytes | None:
        """The same as it is kept."""
        kept = self._kept
        data = kept[name] if name in kept else self.load()[name]
        if data is None:
            data = self._ask(lambda connection: steps.value(connection, self.claim.task_id, name))
        return data

    @property
    def _kept(self) -> Mapping[str, bytes | None]:
        transaction = self.names.here.transaction
        return {} if transaction is None else transaction.kept

    def _ask(self, query: Callable[[Connection], Any]) -> Any:
        if (connection := self.names.here.connection) is not None:
            return query(connection)
        return wait_out(lambda: self.rt.store.statement(query), self.lost.is_set)

    def _decoded(self, name: str, data: bytes) -> Any:
        try:
            return self.codec.decode(data)
        except Exception as error:
            raise BadStep(
                f"task {self.claim.task_id}: the kept value of the step {name!r} cannot be read ({error});"
                " was result_serializer changed? argus.project(…).restart() does the task's work anew"
            ) from error

    # --- recording -------------------------------------------------------------------------------------------------

    def record(self, name: str, value: Any) -> Any:
        """Keep the value; the answer is what a later run will read of it."""
        data = self._encoded(name, value)
        self.write({name: data})
        return value if type(value) in _ALIKE else self.codec.decode(data)

    def write(self, rows: Mapping[str, bytes | None], kind: points.Kind = points.Kind.STEP) -> None:
        """By the transaction around here, if there is one."""
        here = self.names.here
        try:
            if here.connection is not None:
                record_by(self.rt, here.connection, self.claim, rows)
            else:
                record_all(self.rt, self.claim, rows, self.lost)
                points.reached(kind, rows)
        except LeaseLost:
            self.host.check_open(f"the record of {', '.join(rows)}")
            self.lost.set()
            raise
        if here is not self.names.root:
            here.recorded.update(
                {name: data if data and len(data) <= steps.SMALL else None for name, data in rows.items()}
            )
        self.host.progress()

    def finished(self, item: Scope, around: Scope) -> None:
        """This item of a loop, around which is this scope. To be written by ``flush``."""
        self.unwritten[item.path] = around.transaction
        if around is self.names.root:
            self.names.give_back(item, around)  # its path does not come again
        else:
            self.names.note(around, item.path)

    def flush(self) -> None:
        """Write the finished items that were not written yet: those of the transaction around here, if there is one.

        Others would go with its rollback.
        """
        transaction = self.names.here.transaction
        # Of loops side by side none writes what another is writing; and none waits for who waits for its transaction.
        with self._flushing if transaction is None else nullcontext():
            paths = [path for path, by in list(self.unwritten.items()) if by is transaction]
            if paths:
                self.write({naming.row(path): None for path in paths}, points.Kind.ITEM)
                for path in paths:
                    self.unwritten.pop(path, None)

    def _encoded(self, name: str, value: Any) -> bytes:
        try:
            data = self.codec.encode(value)
        except Exception as error:
            raise BadStep(
                f"task {self.claim.task_id}: the step {name!r} has run, but its value cannot be kept ({error});"
                " return what result_serializer can write, such as a reference to the data"
            ) from error
        check_size(
            self.rt, f"task {self.claim.task_id}: the step {name!r} has run, but its value, which was not kept,", data
        )
        return data

    # --- where the run is ------------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, around: Scope, inner: Scope) -> Iterator[Scope]:
        """What is named in the block is given back if it fails: a repeat asks for the same names."""
        token = scope.enter(inner)
        try:
            yield inner
        except BaseException as error:
            self._undo(around, inner, error)
            raise
        else:
            self.names.keep(inner, around)
        finally:
            scope.leave(token)

    def _undo(self, around: Scope, inner: Scope, error: BaseException) -> None:
        for path in inner.taken:
            self.unwritten.pop(path, None)
        self.names.give_back(inner, around)
        if inner.connection is None:
            self.learn(inner.recorded)
        elif around.transaction is not None and around.transaction is inner.transaction:
            around.transaction.kept.update(inner.recorded)
        elif inner.recorded and isinstance(error, StoreUnavailable):
            self.learn(None)

    def learn(self, rows: Mapping[str, bytes | None] | None) -> None:
        """These were recorded in this run, and may be asked for again; None: it cannot be sure which."""
        if rows is not None and not rows:
            return
        with self._knowing:
            self._learned += 1
            if rows is None:
                self._known = None
            elif self._known is not None:
                self._known.update(rows)


_ALIKE = frozenset({str, int, float, bool, type(None)})
"""What every serializer gives back as it was."""


@contextmanager
def transaction(steps: Steps) -> Iterator[Connection]:
    """``flow.transaction``, with the steps in it recorded by its connection: all commits together, or nothing does.

    Inside another it is a savepoint of that one.
    """
    around = steps.names.here
    inner = around.within()
    inner.transaction, inner.kept = inner, dict(around.transaction.kept if around.transaction is not None else {})
    try:
        with steps.inside(around, inner), _begun(steps, around) as connection:
            inner.connection = connection
            yield connection
            steps.flush()  # of loops that were left early
    except BaseException:
        around.undone += inner.made
        raise
    if around.transaction is None:
        steps.learn(inner.kept)
    else:
        around.transaction.kept.update(inner.kept)
        around.transaction.made += inner.made


@contextmanager
def _begun(steps: Steps, around: Scope) -> Iterator[Connection]:
    if around.connection is not None:
        with around.connection.begin_nested():
            yield around.connection
        return
    thread = get_ident()
    if thread in steps.in_transaction:
        raise BadTransaction(
            f"task {steps.claim.task_id}: another coroutine of this body is inside current.transaction(), which this"
            " one would wait for on the same event loop, for ever: do not await inside a transaction"
        )
    steps.in_transaction.add(thread)
    try:
        with transactions.transaction(steps.rt, steps.claim) as connection:
            yield connection
    finally:
        steps.in_transaction.discard(thread)
