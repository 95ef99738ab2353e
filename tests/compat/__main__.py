"""``./dev compat``: Celery's own integration tests with every task durable.

./dev compat                         a part of the suite, of each feature something, in at most 15 minutes
./dev compat --all                   the whole of it on every pair, and without argus; writes last-result.txt
./dev compat --pair redis+redis      the part on another pair
./dev compat test_tasks.py -k retry  these tests; what pytest takes
./dev compat --baseline …            any of it without argus
./dev compat --whole --pair …        the whole of it on one pair, kept for the report; or some files of it anew
./dev compat --report                write last-result.txt from what is kept

1 if a test fails that passes without argus and is not in differences.toml, or if one that is there passes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.compat import judging, report, running, suite
from tests.compat.pairs import ALL, DURABLE, Pair


def main(arguments: Sequence[str]) -> int:
    options, selected = _parser().parse_known_args(arguments)
    if options.all or options.report:
        return _everything(run=options.all)
    pair = next(one for one in DURABLE if one.name == options.pair)
    pair = pair.baseline if options.baseline else pair
    if options.whole:
        _whole(pair, [suite.selected(selected)] if selected else suite.whole())
        return 0
    return _judged(pair, [suite.selected(selected)] if selected else suite.part())


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser("./dev compat", description=__doc__, formatter_class=raw)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--pair", choices=[pair.name for pair in DURABLE], default=DURABLE[0].name)
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--whole", action="store_true")
    return parser


def _whole(pair: Pair, calls: Sequence[Sequence[str]]) -> None:
    """Each call on servers of its own. What fails and has not been run without argus yet is run so."""
    for call in calls:
        ended = running.run(pair, [call])
        running.keep(pair, ended)
        known = running.kept(pair.baseline)
        failed = [one.test for one in judging.failed_in(ended) if one.test not in known]
        if failed:
            running.keep(pair.baseline, running.run(pair.baseline, [failed]))


def _everything(run: bool) -> int:
    for pair in ALL if run else ():
        _whole(pair, suite.whole())
    text, bad = report.full({pair: found for pair in ALL if (found := running.kept(pair))})
    report.FILE.write_text(text)
    print(text)
    return int(bad)


def _judged(pair: Pair, calls: Sequence[Sequence[str]]) -> int:
    """What fails is run without argus too: what fails there as well is not argus's."""
    ended = running.run(pair, calls)
    failed = [one.test for one in judging.failed_in(ended)]
    baseline = running.run(pair.baseline, [failed]) if failed and pair.store else {}
    verdict = judging.judge(pair.name, ended, baseline, judging.table())
    print(f"{pair.name}: {report.counts(ended)}", *report.verdict_lines(verdict), sep="\n")
    return int(verdict.bad or not ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
