"""How a run ended, as one value: the state, the result document and what follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from celery import Celery, states
from kombu.utils.encoding import safe_repr, safe_str

from argus_celery.hooks.attached import attached
from argus_celery.hooks.outbox import Execution
from argus_celery.records import ChordPart, Outcome, TaskState


def succeeded(
    execution: Execution,
    app: Celery,
    result: Any,
    request: Any,
    *,
    keep: bool,
    owed: bool,
    part: ChordPart | None = None,
) -> Outcome:
    """Raises ``EncodeError`` if the result is kept and does not serialise, or is too large."""
    document = _document(app, result, states.SUCCESS, None, request) if keep else None
    return Outcome(
        TaskState.SUCCEEDED,
        result=document,
        undelivered=owed,
        part=part,
        joined=tuple(execution.added.values()),
        continuations=tuple(execution.continuations),
        chords=tuple(execution.chords),
    )


def failed(
    execution: Execution,
    app: Celery,
    error: BaseException,
    traceback: Any,
    request: Any,
    *,
    owed: bool = False,
    follows: bool = False,
    part: ChordPart | None = None,
) -> Outcome:
    """A failure always has a document."""
    return Outcome(
        TaskState.FAILED,
        result=failure_document(app, error, traceback, request),
        error=told(error),
        undelivered=owed,
        follows=follows,
        part=part,
        continuations=tuple(execution.continuations),
        chords=tuple(execution.chords),
    )


def failure_document(app: Celery, error: BaseException, traceback: Any = None, request: Any = None) -> bytes:
    """What does not serialise, or is too large, is told in words."""
    try:
        document = _document(app, error, states.FAILURE, traceback, request)
    except Exception:
        document = _document(app, in_words(app, error), states.FAILURE, None, None)
    return document


def silent(execution: Execution, state: TaskState, why: str, part: ChordPart | None = None) -> Outcome:
    """An end without a result."""
    continuations, chords = tuple(execution.continuations), tuple(execution.chords)
    return Outcome(state, error=why, part=part, continuations=continuations, chords=chords)


def retried(app: Celery, error: BaseException, traceback: Any, request: Any) -> bytes:
    """What a run that is to be repeated leaves to read until then."""
    try:
        return _document(app, error, states.RETRY, traceback, request)
    except Exception:
        return _document(app, in_words(app, error), states.RETRY, None, None)


def ignored(execution: Execution, why: str, part: ChordPart | None) -> Outcome:
    """The body has raised ``Ignore``: an end that it gave itself by ``update_state`` stands."""
    state, document = execution.said or ("", None)
    ended = TaskState.FAILED if state in states.EXCEPTION_STATES else TaskState.SUCCEEDED
    silently = silent(execution, ended if state in states.READY_STATES else TaskState.SUCCEEDED, why, part)
    return replace(silently, result=document) if state in states.READY_STATES else silently


def _document(app: Celery, result: Any, state: str, traceback: Any, request: Any) -> bytes:
    """Raises ``EncodeError``, also of what is too large."""
    argus: Any = attached(app)
    document: bytes = argus.results.document(result, state, traceback, request)
    return document


def in_words(app: Celery, error: BaseException) -> Exception:
    limit = min(attached(app).settings.max_payload // 4, 10_000)
    return Exception(f"{type(error).__name__}: {safe_str(error)}"[:limit])


def told(error: BaseException) -> str:
    """The error for a person, in one line of bounded length."""
    text = str(safe_repr(error))
    return text if len(text) <= 2000 else text[:2000] + "…"
