"""What is kept of a chord: its body and the parts of its header, to and from bytes."""

from __future__ import annotations

import json
from typing import Any

from celery import Celery, group, states
from celery.canvas import _chord, _regen, maybe_signature
from celery.exceptions import NotRegistered
from celery.result import GroupResult
from kombu.serialization import dumps, loads, prepare_accept_content
from kombu.utils.encoding import ensure_bytes

from argus_celery.flow.checks import check_size
from argus_celery.hooks.attached import attached
from argus_celery.hooks.backend import ResultTooLarge
from argus_celery.hooks.ids import check_ids
from argus_celery.hooks.outcome import in_words
from argus_celery.records import ChordPart, NewChord, OwedChord

_FAILED = states.PROPAGATE_STATES


def part_of(app: Celery, request: Any, state: str, result: Any) -> ChordPart | None:
    """The part that this request's task is of a chord, if it is.

    Raises ``EncodeError`` for a result that does not serialise or is too large; a failure is told in words then.
    """
    if not (request and request.chord and request.group and request.id):
        return None
    try:
        document = _encoded(app, request, state, result)
    except Exception:
        if state not in _FAILED:
            raise
        document = _encoded(app, request, state, in_words(app, result))
    return ChordPart(request.group, request.id, request.group_index, state, document)


def _encoded(app: Celery, request: Any, state: str, result: Any) -> bytes:
    results = attached(app).results
    document = bytes(ensure_bytes(results.encode(results.encode_result(result, state))))
    label = f"the result of {request.task}[{request.id}], a part of a chord,"
    check_size(attached(app).runtime, label, document, ResultTooLarge)
    return document


def value_of(app: Celery, part: ChordPart) -> Any:
    """What the part came to; of one that failed, the exception."""
    results = attached(app).results
    value = results.decode(part.result)
    return results.exception_to_python(value) if part.state in states.EXCEPTION_STATES else value


def has_failed(part: ChordPart) -> bool:
    return part.state in _FAILED


# --- the chord -----------------------------------------------------------------------------------------------------


def new_chord(app: Celery, chord_id: str, results: Any, body: Any, project_id: int | None) -> NewChord:
    """Raises ``EncodeError``, ``PayloadTooLarge`` and ``BadTask`` for a body that cannot be kept."""
    check_ids(body)
    data = _body_bytes(app, body)
    check_size(attached(app).runtime, "the body of a chord", data)
    if isinstance(results, _regen):  # a lazy header is not looked at before it is sent
        return NewChord(chord_id, data, project_id=project_id)
    shape = [_shape(result) for result in results]
    leaves = list(_leaves(shape))
    twice = len(leaves) - len(set(leaves))
    nested = twice or any(isinstance(one, list) for one in shape)
    structure = json.dumps(shape).encode() if nested else None
    return NewChord(chord_id, data, structure, done=twice, project_id=project_id)


def _shape(result: Any) -> Any:
    return [_shape(one) for one in result.results] if isinstance(result, GroupResult) else result.id


def _leaves(shape: Any) -> Any:
    for one in shape:
        if isinstance(one, list):
            yield from _leaves(one)
        else:
            yield one


def _body_bytes(app: Celery, body: Any) -> bytes:
    kind, encoding, data = dumps(dict(body), serializer=_serializer(app, body))
    return b"\n".join((kind.encode(), encoding.encode(), data.encode(encoding) if isinstance(data, str) else data))


def _serializer(app: Celery, body: Any) -> str:
    try:
        of_task = None if isinstance(body, (group, _chord)) else getattr(body.type, "serializer", None)
    except NotRegistered:
        of_task = None
    return body.options.get("serializer") or of_task or app.conf.task_serializer


def body_of(app: Celery, chord: OwedChord) -> Any:
    """The signature to be called."""
    kind, encoding, data = chord.body.split(b"\n", 2)
    accept = prepare_accept_content(app.conf.accept_content)
    return maybe_signature(loads(data, kind.decode(), encoding.decode(), accept=accept), app=app)


def arranged(chord: OwedChord, values: dict[str, Any]) -> list[Any]:
    """The values (by task id) in the order and the shape of the header; what was added to it comes last."""
    if chord.structure is None:
        return [values[part.task_id] for part in chord.parts]
    shape = json.loads(chord.structure)
    leaves = set(_leaves(shape))
    if not leaves <= values.keys():
        return [values[part.task_id] for part in chord.parts]
    added = [values[part.task_id] for part in chord.parts if part.task_id not in leaves]
    return _filled(shape, values) + added


def _filled(shape: Any, values: dict[str, Any]) -> list[Any]:
    return [_filled(one, values) if isinstance(one, list) else values[one] for one in shape]
