"""Chaos: mixed work on real workers, brokers and databases, and an adversary who breaks all of it.

One seed says which work is sent (``work``), which faults come and after how much of it (``faults``). A run
(``run``) starts the world, lets the adversary at it, and waits until all is over; then the judge (``judge``) compares
what the producer says it sent, what the bodies noted in the ledger, and the rows that are left in the store.
"""
