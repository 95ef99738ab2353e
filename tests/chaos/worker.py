"""``celery -A tests.chaos.worker worker``: the app as the environment says."""

from tests.chaos.bodies import register
from tests.faults.app import make_app, watch
from tests.faults.setup import Setup

setup = Setup.from_environment()
app = make_app(setup, register=register)
watch(app, setup)
