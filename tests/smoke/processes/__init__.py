"""A Docker client whose containers are processes of this machine: as much of ``docker`` as pytest-celery asks for.

It runs the images that the smoke suite names (Redis, RabbitMQ, PostgreSQL, a Celery worker) and knows nothing else.
"""

from tests.smoke.processes.client import ProcessClient

__all__ = ["ProcessClient"]
