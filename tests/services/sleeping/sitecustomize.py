"""Under libfaketime: it gives the kernel a false time for ``time.sleep``, which asks for an absolute one."""

import select
import time


def sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


time.sleep = sleep
