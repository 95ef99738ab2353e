"""The plan of the faults: a seed and a number make one, with its victim and its length."""

from __future__ import annotations

from functools import cache
from random import Random

from tests.chaos import killing, messages, network, servers, stopping
from tests.chaos.fault import Fault
from tests.chaos.options import Options
from tests.services import ServiceMissing
from tests.services.session import TOOLS

KINDS: list[type[Fault]] = [
    killing.KillChild,
    killing.KillWorker,
    killing.KillAllWorkers,
    killing.TermWorker,
    killing.SkewWorker,
    killing.KillBeat,
    killing.KillProducer,
    stopping.StopWorker,
    stopping.StopMain,
    servers.RestartBroker,
    servers.FreezeBroker,
    servers.RestartStore,
    servers.FreezeStore,
    servers.LockStore,
    network.CutBroker,
    network.StallBroker,
    network.CutStore,
    network.StallStore,
    messages.Flush,
    messages.Copy,
    messages.Replay,
]


def fault(options: Options, number: int) -> Fault:
    random = Random(f"{options.seed}/fault/{number}")
    kinds = fitting(options)
    [kind] = random.choices(kinds, [one.weight for one in kinds])
    return kind(random)


def fitting(options: Options) -> list[type[Fault]]:
    """What makes sense on this broker and store, is wanted, and is possible on this machine."""
    wanted = options.faults or {one.name for one in KINDS}
    return [one for one in KINDS if one.name in wanted and _fits(one, options) and not lacks(one)]


@cache
def lacks(kind: type[Fault]) -> str:
    """What to install for it; empty if nothing is missing."""
    try:
        if kind.tool:
            TOOLS[kind.tool]()
    except ServiceMissing as missing:
        return str(missing)
    return ""


def _fits(kind: type[Fault], options: Options) -> bool:
    return options.broker in (kind.brokers or (options.broker,)) and options.store in (kind.stores or (options.store,))
