"""``python -m tests.services``: which program each service would be started from; 1 if one is missing."""

from __future__ import annotations

import sys

from tests.services.server import ServiceMissing
from tests.services.session import SERVICES, TOOLS


def main() -> int:
    missing = 0
    for name, server_class in SERVICES.items():
        try:
            server_class().close()
            print(f"{name}: found")
        except ServiceMissing as error:
            missing = 1
            print(f"{name}: {error}")
    for name, find in TOOLS.items():
        try:
            print(f"{name}: {find()}")
        except ServiceMissing as error:
            missing = 1
            print(f"{name}: {error}")
    return missing


if __name__ == "__main__":
    sys.exit(main())
