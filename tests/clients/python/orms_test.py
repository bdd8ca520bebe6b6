"""SQLModel, peewee and Tortoise: tables, queries and transactions on a primary, reads at its standby."""

import asyncio
import datetime
import decimal
import os
import uuid

import peewee
from playhouse.postgres_ext import ArrayField, BinaryJSONField, PostgresqlExtDatabase
from playhouse.reflection import Introspector
from sqlalchemy import JSON, Column, text
from sqlmodel import Field, Relationship, Session, SQLModel, create_engine, func, select
from tortoise import Tortoise, connections, fields
from tortoise.exceptions import IntegrityError
from tortoise.expressions import F, Q
from tortoise.functions import Count
from tortoise.models import Model
from tortoise.transactions import in_transaction

HOST, USER, DATABASE = os.environ["PGHOST"], os.environ["PGUSER"], os.environ["PGDATABASE"]
PRIMARY, STANDBY = int(os.environ["PRIMARY"]), int(os.environ["STANDBY"])


# SQLModel


class Team(SQLModel, table=True):
    __table_args__ = {"schema": "sqlmodel_app"}
    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(index=True, unique=True)
    heroes: list["Hero"] = Relationship(back_populates="team")


class Hero(SQLModel, table=True):
    __table_args__ = {"schema": "sqlmodel_app"}
    id: uuid.UUID = Field(default_factory=uuid.uuid4, primary_key=True)
    name: str
    age: int | None = None
    worth: decimal.Decimal = Field(default=0, max_digits=8, decimal_places=2)
    extra: dict = Field(default_factory=dict, sa_column=Column(JSON))
    team_id: int | None = Field(default=None, foreign_key="sqlmodel_app.team.id")
    team: Team | None = Relationship(back_populates="heroes")


def with_sqlmodel():
    engine = create_engine(f"postgresql+psycopg://{USER}@{HOST}:{PRIMARY}/{DATABASE}")
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA sqlmodel_app"))
    SQLModel.metadata.create_all(engine)
    SQLModel.metadata.create_all(engine)
    with Session(engine) as session:
        team = Team(name="one", heroes=[Hero(name=f"h{n}", age=n, worth=decimal.Decimal(n) / 4, extra={"n": n}) for n in range(8)])
        session.add(team)
        session.commit()
        session.refresh(team)
        assert sorted(it.name for it in team.heroes) == [f"h{n}" for n in range(8)]
        found = session.exec(select(Hero).where(Hero.age > 5, Hero.team == team).order_by(Hero.age)).all()
        assert [(it.name, it.worth, it.extra) for it in found] == [
            ("h6", decimal.Decimal("1.50"), {"n": 6}),
            ("h7", decimal.Decimal("1.75"), {"n": 7}),
        ]
        assert session.exec(select(Team.name, func.count(Hero.id)).join(Hero).group_by(Team.name)).one() == ("one", 8)
        lsn = session.exec(text("SHOW freshet.last_commit")).scalar_one()
    standby = create_engine(f"postgresql+psycopg://{USER}@{HOST}:{STANDBY}/{DATABASE}")
    with Session(standby) as session:
        session.exec(text(f"SET freshet.read_after = '{lsn}'"))
        session.commit()
        assert len(session.exec(select(Team)).one().heroes) == 8
    standby.dispose()
    SQLModel.metadata.drop_all(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA sqlmodel_app"))
    engine.dispose()


# peewee

db = PostgresqlExtDatabase(DATABASE, user=USER, host=HOST, port=PRIMARY)


class Base(peewee.Model):
    class Meta:
        database = db
        schema = "peewee_app"


class Person(Base):
    name = peewee.CharField(max_length=40, unique=True)
    born = peewee.DateField(null=True)
    tags = ArrayField(peewee.TextField, default=list, index=False)
    meta = BinaryJSONField(default=dict, index=False)
    made = peewee.DateTimeField(default=datetime.datetime.now)
    worth = peewee.DecimalField(max_digits=10, decimal_places=2, default=0, constraints=[peewee.Check("worth >= 0")])


class Pet(Base):
    id = peewee.UUIDField(primary_key=True, default=uuid.uuid4)
    owner = peewee.ForeignKeyField(Person, backref="pets", on_delete="CASCADE")
    name = peewee.TextField(index=True)

    class Meta:
        indexes = ((("owner", "name"), True),)


def with_peewee():
    db.connect()
    db.execute_sql("CREATE SCHEMA peewee_app")
    for _ in range(2):
        db.create_tables([Person, Pet])
    ada = Person.create(name="Ada", born=datetime.date(1815, 12, 10), tags=["x", 'y "z"'], meta={"a": [1, None]})
    Person.insert_many([{"name": "Bob"}, {"name": "Cy"}]).execute()
    Pet.insert_many([{"id": uuid.uuid4(), "owner": ada, "name": f"p{n}"} for n in range(5)]).execute()
    found = Person.get(Person.meta.contains({"a": [1]}))
    assert (found.tags, found.born, [it.name for it in found.pets.order_by(Pet.name.desc()).limit(2)]) == (
        ["x", 'y "z"'], datetime.date(1815, 12, 10), ["p4", "p3"],
    )
    assert Person.select().where(Person.tags.contains("x")).count() == 1
    counted = Person.select(Person.name, peewee.fn.COUNT(Pet.id).alias("n")).join(Pet, peewee.JOIN.LEFT_OUTER).group_by(Person.name).order_by(peewee.SQL("n").desc(), Person.name)
    assert [(it.name, it.n) for it in counted] == [("Ada", 5), ("Bob", 0), ("Cy", 0)]
    upsert = Person.insert(name="Ada", worth=5).on_conflict(conflict_target=[Person.name], preserve=[Person.worth], update={Person.meta: {}})
    upsert.execute()
    assert Person.get(name="Ada").worth == 5
    try:
        with db.atomic():
            Pet.delete().execute()
            with db.atomic():
                Person.create(name="Poor", worth=-1)
    except peewee.IntegrityError:
        pass
    assert Pet.select().count() == 5
    updated = Person.update(worth=Person.worth + 1).where(Person.name.in_(["Bob", "Cy"])).returning(Person.name).execute()
    assert sorted(it.name for it in updated) == ["Bob", "Cy"]
    with db.atomic():
        assert Person.select().where(Person.name == "Bob").for_update("FOR NO KEY UPDATE").get().worth == 1
    models = Introspector.from_database(db, schema="peewee_app").generate_models()
    assert sorted(models) == ["person", "pet"] and isinstance(models["pet"].owner, peewee.ForeignKeyField), models
    assert [it.columns for it in db.get_indexes("pet", "peewee_app") if it.unique and len(it.columns) == 2] == [["owner_id", "name"]]
    lsn = db.execute_sql("SHOW freshet.last_commit").fetchone()[0]
    standby = PostgresqlExtDatabase(DATABASE, user=USER, host=HOST, port=STANDBY)
    standby.connect()
    standby.execute_sql(f"SET freshet.read_after = '{lsn}'")
    with standby.bind_ctx([Person, Pet]):
        assert Pet.select().join(Person).where(Person.name == "Ada").count() == 5
    standby.close()
    db.drop_tables([Pet, Person])
    db.execute_sql("DROP SCHEMA peewee_app")
    db.close()


# Tortoise


class Event(Model):
    id = fields.IntField(primary_key=True)
    name = fields.CharField(max_length=60, unique=True)
    data = fields.JSONField(default=dict)
    price = fields.DecimalField(max_digits=8, decimal_places=2, default=0)
    began = fields.DatetimeField(auto_now_add=True)
    guests = fields.ManyToManyField("models.Guest", related_name="events")

    class Meta:
        table = "tortoise_event"
        indexes = [("price", "name")]


class Guest(Model):
    id = fields.UUIDField(primary_key=True)
    name = fields.TextField(description="in full")
    host = fields.ForeignKeyField("models.Guest", null=True, on_delete=fields.SET_NULL, related_name="brings")

    class Meta:
        table = "tortoise_guest"


async def with_tortoise():
    url = "asyncpg://{}@{}:{}/{}"
    await Tortoise.init(db_url=url.format(USER, HOST, PRIMARY, DATABASE), modules={"models": ["__main__"]})
    await Tortoise.generate_schemas()
    await Tortoise.generate_schemas(safe=True)
    host = await Guest.create(name="host")
    guests = [await Guest.create(name=f"g{n}", host=host) for n in range(4)]
    await Event.bulk_create([Event(name="e9", price=1)])
    await Event.filter(name="e9").delete()
    for n in range(3):
        event = await Event.create(name=f"e{n}", data={"n": n, "list": [1, 2]}, price=n * 10)
        await event.guests.add(*guests[: n + 1])
    assert [it.name async for it in Guest.filter(events__name="e1").order_by("name")] == ["g0", "g1"]
    counted = await Event.annotate(n=Count("guests")).filter(n__gte=2).order_by("-n").values("name", "n")
    assert counted == [{"name": "e2", "n": 3}, {"name": "e1", "n": 2}], counted
    assert await Event.filter(Q(data__contains={"n": 1}) | Q(name__icontains="E2")).count() == 2
    assert await Event.filter(price__gt=5).update(price=F("price") + 1) == 2
    try:
        await Event.create(name="e1")
        raise AssertionError("a duplicate")
    except IntegrityError:
        pass
    try:
        async with in_transaction():
            await Event.select_for_update(skip_locked=True).get(name="e0")
            await Guest.all().delete()
            raise RuntimeError
    except RuntimeError:
        pass
    loaded = await Guest.all().prefetch_related("events", "brings").order_by("name")
    assert [(it.name, len(it.events), len(it.brings)) for it in loaded] == [("g0", 3, 0), ("g1", 2, 0), ("g2", 1, 0), ("g3", 0, 0), ("host", 0, 4)]
    connection = connections.get("default")
    lsn = (await connection.execute_query_dict("SHOW freshet.last_commit"))[0]["freshet.last_commit"]
    await connections.close_all()
    await Tortoise.init(db_url=url.format(USER, HOST, STANDBY, DATABASE) + "?maxsize=1", modules={"models": ["__main__"]})
    await connections.get("default").execute_script(f"SET freshet.read_after = '{lsn}'")
    assert await Event.filter(guests__name="g0").count() == 3
    await connections.close_all()
    await Tortoise.init(db_url=url.format(USER, HOST, PRIMARY, DATABASE), modules={"models": ["__main__"]})
    await connections.get("default").execute_script('DROP TABLE "tortoise_event_tortoise_guest", tortoise_event, tortoise_guest')
    await connections.close_all()


with_sqlmodel()
print("   SQLModel", flush=True)
with_peewee()
print("   peewee", flush=True)
asyncio.run(with_tortoise())
print("   Tortoise", flush=True)
