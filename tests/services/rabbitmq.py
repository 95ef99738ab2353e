"""RabbitMQ of the machine, as the user who runs the tests, with an ``epmd`` of its own that ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.services import guard
from tests.services.server import Server, ServiceMissing, find_program, free_port, port_answers, wait_until


class RabbitServer(Server):
    """``guest:guest`` on loopback. ``control("stop_app")`` runs rabbitmqctl on it."""

    name = "rabbitmq"
    start_seconds = 180.0

    def __init__(self, port: int | None = None) -> None:
        self.program, self.epmd_program = _programs()
        super().__init__(port)
        self.distribution_port = free_port()
        self.epmd_port = free_port()
        self.epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    @property
    def node(self) -> str:
        return f"argus{self.port}@localhost"

    def prepare(self) -> None:
        (self.folder / "plugins").write_text("[].\n")
        config = f"listeners.tcp.1 = 127.0.0.1:{self.port}\nvm_memory_high_watermark.absolute = 1GB\n"
        (self.folder / "rabbitmq.conf").write_text(config + "disk_free_limit.absolute = 10MB\n")
        self._start_epmd()

    def command(self) -> Sequence[str | Path]:
        return [self.program]

    def popen_options(self) -> dict[str, Any]:
        return {"env": self.environment}

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def answers(self) -> bool:
        import amqp

        try:
            connection = amqp.Connection(f"127.0.0.1:{self.port}", connect_timeout=2, read_timeout=5)
            connection.connect()
            connection.close()
        except (OSError, amqp.AMQPError):
            return False
        return True

    def control(self, *arguments: str) -> str:
        call = [*self.control_command, *arguments]
        return subprocess.run(call, check=True, capture_output=True, text=True).stdout

    @property
    def control_command(self) -> list[str]:
        """The command line that reaches this node from any environment."""
        known = {name: self.environment[name] for name in ("HOME", "ERL_EPMD_PORT", "RABBITMQ_CONF_ENV_FILE")}
        settings = [f"{name}={value}" for name, value in known.items()]
        return ["env", *settings, str(self.program.with_name("rabbitmqctl")), "-q", "-n", self.node]

    def stop(self, signum: int | None = None) -> None:
        super().stop(signum)
        self._stop_epmd()

    def kill(self) -> None:
        super().kill()
        self._stop_epmd()

    def _start_epmd(self) -> None:
        """In the foreground, as a child: else Erlang starts a daemon that outlives the node."""
        call = [str(self.epmd_program), "-port", str(self.epmd_port), "-address", "127.0.0.1"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.epmd = subprocess.Popen(call, stdin=subprocess.DEVNULL, start_new_session=True, **quiet)
        guard.watch_process(self.epmd.pid)
        wait_until(lambda: port_answers(self.epmd_port), 10)

    def _stop_epmd(self) -> None:
        if self.epmd is not None:
            self.epmd.send_signal(signal.SIGKILL)
            self.epmd.wait()
            self.epmd = None


def _programs() -> tuple[Path, Path]:
    """The script below lib/: the one in sbin changes to the account ``rabbitmq``."""
    places = ("/usr/lib/rabbitmq/bin", "/usr/lib/rabbitmq/lib/*/sbin", "/opt/homebrew/sbin", "/usr/local/sbin")
    program = next((path for place in places if (path := _in(place)) is not None), None) or _on_path()
    epmd = find_program("epmd", "/usr/lib/erlang/erts-*/bin", "/usr/lib/erlang/bin")
    if program is None or epmd is None:
        raise ServiceMissing("no RabbitMQ: set ARGUS_TEST_RABBITMQ_URL or install rabbitmq-server")
    return program, epmd


def _in(place: str) -> Path | None:
    found = sorted(Path("/").glob(f"{place.lstrip('/')}/rabbitmq-server"), reverse=True)
    return found[0] if found else None


def _on_path() -> Path | None:
    return find_program("rabbitmq-server")
