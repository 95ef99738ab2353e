"""``python -m tests.integration.gevent_waiting URL``: twenty greenlets wait, each for its result."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402

import gevent  # noqa: E402
from celery import Celery  # noqa: E402

from argus_celery import Argus  # noqa: E402
from argus_celery.flow.complete import complete  # noqa: E402
from argus_celery.records import Outcome, TaskState  # noqa: E402
from tests.store.bench import Bench  # noqa: E402


def main(url: str) -> None:
    app = Celery("greenlets", broker="memory://", backend="argus://", set_as_current=False)
    argus = Argus(app, store=url)
    bench = Bench(argus.runtime.store)
    claims = [bench.running() for _ in range(20)]
    waiting = [gevent.spawn(lambda id_=c.task_id: app.AsyncResult(id_).get(timeout=20)) for c in claims]
    gevent.sleep(0.2)
    for number, claim in enumerate(claims):
        document = argus.results.document(number, "SUCCESS", None, None)
        complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, document))
    gevent.joinall(waiting, timeout=25)
    print([one.value for one in waiting] == list(range(20)))


main(sys.argv[1])
