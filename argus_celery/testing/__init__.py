"""For tests of your own durable tasks: a pytest plugin that needs no server. ``docs/testing.md`` shows its fixtures."""
