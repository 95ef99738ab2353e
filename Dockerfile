# The demo project's image, for docker-compose.yml: the package, its locked dependencies, and the examples.
FROM python:3.13-slim

WORKDIR /app
COPY requirements/compose.txt requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/compose.txt

COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

USER nobody
