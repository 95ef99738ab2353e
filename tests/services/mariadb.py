"""MariaDB (or MySQL's file layout compatible fork) of the machine; no wheel brings it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.services.server import Server, ServiceMissing, find_program


class MariaServer(Server):
    """``root`` without a password, on loopback."""

    name = "mariadb"
    in_memory = True

    def __init__(self, port: int | None = None) -> None:
        self.program, self.installer = _programs()
        super().__init__(port)

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/mysql"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def prepare(self) -> None:
        if self.data.exists():
            return
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        call = [str(self.installer), "--no-defaults", *_user(), f"--datadir={self.data}", *options]
        made = subprocess.run([*call, self._temporary()], capture_output=True, text=True, cwd=self.folder)
        if made.returncode:
            raise RuntimeError(f"{' '.join(map(str, call))}: exit {made.returncode}: {made.stdout}{made.stderr}")

    def command(self) -> Sequence[str | Path]:
        place = [f"--datadir={self.data}", f"--port={self.port}", f"--socket={self.folder / 'socket'}"]
        net = ["--bind-address=127.0.0.1", "--skip-name-resolve", f"--pid-file={self.folder / 'pid'}"]
        # A killed process loses nothing by the flush option, only a killed machine.
        size = ["--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M", "--max-connections=300"]
        return [self.program, "--no-defaults", *_user(), *place, *net, *size, self._temporary()]

    def _temporary(self) -> str:
        """Its own: a server that starts removes the temporary tables of all who share the folder with it."""
        folder = self.folder / "tmp"
        folder.mkdir(exist_ok=True)
        return f"--tmpdir={folder}"

    def answers(self) -> bool:
        import pymysql

        try:
            pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=2).close()
        except pymysql.err.OperationalError:
            return False
        return True


def _user() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _programs() -> tuple[Path, Path]:
    program = find_program("mariadbd", "/usr/sbin", "/usr/local/sbin", "/usr/libexec")
    installer = find_program("mariadb-install-db", "/usr/bin", "/usr/local/bin")
    if program is None or installer is None:
        raise ServiceMissing("no MariaDB: set ARGUS_TEST_MARIADB_URL or install mariadb-server")
    return program, installer
