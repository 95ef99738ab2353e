"""Real servers for tests, without Docker: each a small class that starts, stops, kills and restarts one process.

    with RedisServer() as redis:      # started on a free loopback port in a throw-away folder
        redis.url; redis.kill(); redis.start(); redis.stop(); redis.restart(); redis.pause(); redis.resume()

Data outlives ``stop`` and ``kill`` (Redis: with ``aof=True``), port and URL do too; ``close`` removes them.
``ServiceMissing`` says in one sentence what to install or to set.
"""

from tests.services.mariadb import MariaServer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitServer
from tests.services.redis import RedisServer
from tests.services.server import Server, ServiceMissing, free_port

__all__ = ["MariaServer", "PostgresServer", "RabbitServer", "RedisServer", "Server", "ServiceMissing", "free_port"]
