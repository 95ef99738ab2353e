"""An order and its task in one transaction, in FastAPI.

Run it with ``uvicorn examples.fastapi.shop:web`` and ``celery -A examples.fastapi.shop worker``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import sqlalchemy as sa
from celery import Celery
from fastapi import FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from argus_celery import Argus, durable

DB = os.environ.get("SHOP_DB", "sqlite:///shop.db")

shop = Celery("shop", broker=f"argus+{DB}", backend="argus://")
argus = Argus(shop, store=DB)
engine = create_async_engine(DB.replace("sqlite:", "sqlite+aiosqlite:"))
sessions = async_sessionmaker(engine, class_=AsyncSession)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]


@durable
@shop.task(name="shop.charge")
def charge(order_id: int) -> int:
    with sa.create_engine(DB).connect() as connection:
        return connection.execute(sa.select(Order.amount).where(Order.id == order_id)).scalar_one()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    web.state.project = await argus.aproject("orders")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=202)
async def order(amount: int) -> dict[str, str | int]:
    async with sessions.begin() as session:  # commits at its end, or rolls back
        made = Order(amount=amount)
        session.add(made)
        await session.flush()
        task = await web.state.project.aenqueue(charge.s(made.id), key=f"order-{made.id}", session=session)
        if amount <= 0:
            raise HTTPException(422, "an order costs something")
        return {"order": made.id, "task": task.id}


@web.get("/progress")
async def progress() -> dict[str, int]:
    return {str(state): count for state, count in (await web.state.project.aprogress()).counts.items()}
