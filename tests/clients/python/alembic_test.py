"""Alembic's migrations below SQLAlchemy 2, by psycopg 2: up, down, what it would change, and reads at the standby."""

import os
import tempfile
from pathlib import Path

import sqlalchemy as sa
from alembic import command, config
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql

URL = "postgresql+psycopg2://freshet@127.0.0.1:{}/freshet"

ENVIRONMENT = """
from alembic import context
from alembic_test import Base
import sqlalchemy as sa

engine = sa.create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(
        connection=connection, target_metadata=Base.metadata, compare_type=True, compare_server_default=True,
        include_schemas=True, include_name=lambda name, kind, parents: kind != "schema" or name == "alembic_app",
        version_table_schema="alembic_app", transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()
"""


def same(found, wanted, what):
    if found != wanted:
        raise SystemExit(f"{what}: expected {wanted!r}, found {found!r}")


class Base(orm.DeclarativeBase):
    metadata = sa.MetaData(
        schema="alembic_app",
        naming_convention={"ix": "ix_%(column_0_label)s", "uq": "uq_%(table_name)s_%(column_0_name)s"},
    )


class Owner(Base):
    __tablename__ = "owner"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(40), unique=True, comment="in full")
    extra: orm.Mapped[dict | None] = orm.mapped_column(postgresql.JSONB)
    since = orm.mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    pets: orm.Mapped[list["Pet"]] = orm.relationship(back_populates="owner")
    __table_args__ = (
        sa.Index("owner_by_lower_name", sa.func.lower(sa.text("name"))),
        sa.Index("owner_with_extra", "since", postgresql_where=sa.text("extra IS NOT NULL")),
    )


class Pet(Base):
    __tablename__ = "pet"
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, sa.Identity(always=True), primary_key=True)
    owner_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey(Owner.id, ondelete="CASCADE"), index=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.Text, server_default="nameless")
    weight = orm.mapped_column(sa.Numeric(6, 2))
    born = orm.mapped_column(sa.Date)
    tags = orm.mapped_column(postgresql.ARRAY(sa.Text))
    owner: orm.Mapped[Owner] = orm.relationship(back_populates="pets")
    __table_args__ = (sa.CheckConstraint("weight > 0", name="weight_is_positive"), sa.UniqueConstraint("owner_id", "name"))


def migrated(url, directory):
    (directory / "versions").mkdir()
    (directory / "env.py").write_text(ENVIRONMENT)
    (directory / "script.py.mako").write_text(
        'revision = ${repr(up_revision)}\ndown_revision = ${repr(down_revision)}\nfrom alembic import op\nimport sqlalchemy as sa\n'
        "${imports if imports else ''}\ndef upgrade():\n    ${upgrades or 'pass'}\n\ndef downgrade():\n    ${downgrades or 'pass'}\n"
    )
    alembic = config.Config()
    alembic.set_main_option("script_location", str(directory))
    alembic.set_main_option("path_separator", "os")
    alembic.set_main_option("prepend_sys_path", str(Path(__file__).parent))
    alembic.set_main_option("sqlalchemy.url", url)
    # What is to be made is found by comparing the models with the database.
    command.revision(alembic, "all of it", autogenerate=True)
    command.upgrade(alembic, "head")
    command.check(alembic)
    path = Path(command.revision(alembic, "by hand").path)
    text = path.read_text()
    up = """
    op.add_column("pet", sa.Column("note", sa.Text(), server_default="x", nullable=False), schema="alembic_app")
    op.alter_column("pet", "name", type_=sa.String(30), nullable=True, schema="alembic_app")
    op.alter_column("pet", "born", new_column_name="birthday", schema="alembic_app")
    op.create_check_constraint("born_lately", "pet", "birthday > '1900-01-01'", schema="alembic_app")
    op.create_table("log", sa.Column("at", sa.Integer, sa.Sequence("log_at", schema="alembic_app")), schema="alembic_app")
    op.bulk_insert(sa.table("owner", sa.column("name"), schema="alembic_app"), [{"name": "first"}, {"name": "second"}])
    op.execute("UPDATE alembic_app.owner SET extra = '{}' WHERE name = 'first'")
    with op.get_context().autocommit_block():
        op.create_index("pet_by_birthday", "pet", ["birthday"], schema="alembic_app", postgresql_concurrently=True)
"""
    down = """
    op.drop_index("pet_by_birthday", "pet", schema="alembic_app")
    op.drop_table("log", schema="alembic_app")
    op.drop_constraint("born_lately", "pet", schema="alembic_app")
    op.alter_column("pet", "birthday", new_column_name="born", schema="alembic_app")
    op.alter_column("pet", "name", type_=sa.Text(), nullable=False, schema="alembic_app")
    op.drop_column("pet", "note", schema="alembic_app")
    op.execute("DELETE FROM alembic_app.owner")
"""
    path.write_text(text.replace("upgrade():\n    pass", f"upgrade():{up}").replace("downgrade():\n    pass", f"downgrade():{down}"))
    command.upgrade(alembic, "head")
    command.downgrade(alembic, "-1")
    # Nothing is left of it.
    path.unlink()
    command.check(alembic)
    command.downgrade(alembic, "base")
    command.upgrade(alembic, "head")


def worked(engine):
    with orm.Session(engine) as session:
        session.add(
            Owner(
                name="Ada", extra={"a": [1]},
                pets=[Pet(name=f"pet {n}", weight=n + 1, tags=["a", str(n)]) for n in range(20)],
            )
        )
        session.add(Owner(name="Nobody"))
        session.commit()
        same(session.scalar(sa.select(sa.func.sum(Pet.weight * 2))), 420, "a sum")
        found = session.scalars(sa.select(Owner).options(orm.selectinload(Owner.pets)).order_by(Owner.name)).all()
        same([(it.name, len(it.pets)) for it in found], [("Ada", 20), ("Nobody", 0)], "owners")
        session.execute(postgresql.insert(Pet).values(owner_id=1, name="pet 1", weight=7).on_conflict_do_update(
            constraint="uq_pet_owner_id", set_={"weight": sa.literal_column("excluded.weight") + Pet.weight}
        ))
        same(session.scalar(sa.select(Pet.weight).where(Pet.name == "pet 1")), 9, "ON CONFLICT")
        locked = session.scalars(sa.select(Pet).join(Owner).with_for_update(of=Pet, skip_locked=True, key_share=True)).all()
        same(len(locked), 20, "FOR NO KEY UPDATE OF")
        session.execute(sa.insert(Pet), [{"owner_id": 2, "name": f"more {n}", "weight": 1} for n in range(2500)])
        session.commit()
        raw = engine.raw_connection()
        cursor = raw.cursor()
        cursor.execute("SELECT name, %s, %s, %s FROM alembic_app.owner WHERE name = ANY(%s)", (None, b"\0\1", [1, 2], ["Ada"]))
        same([bytes(it) if isinstance(it, memoryview) else it for it in cursor.fetchone()], ["Ada", None, b"\0\1", [1, 2]], "by psycopg 2")
        named = raw.cursor("of_the_server", scrollable=True)
        named.execute("SELECT name FROM alembic_app.pet ORDER BY id")
        same([named.fetchone()[0], named.fetchmany(2)[1][0]], ["pet 0", "pet 2"], "a cursor of the server")
        named.scroll(-2)
        same(named.fetchone()[0], "pet 1", "a cursor that goes back")
        named.close()
        with open(os.devnull, "w") as out:
            cursor.copy_expert("COPY alembic_app.pet TO STDOUT", out)
        same(cursor.rowcount, 2520, "COPY")
        raw.close()
        return session.scalar(sa.text("SHOW freshet.last_commit"))


def main():
    engine = sa.create_engine(URL.format(os.environ["PRIMARY"]), insertmanyvalues_page_size=1000)
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema("alembic_app"))
    with tempfile.TemporaryDirectory() as directory:
        migrated(engine.url.render_as_string(), Path(directory))
    lsn = worked(engine)
    standby = sa.create_engine(URL.format(os.environ["STANDBY"]))
    with standby.connect() as connection:
        connection.exec_driver_sql(f"SET freshet.read_after = '{lsn}'")
        connection.commit()
        same(connection.scalar(sa.select(sa.func.count()).select_from(Pet)), 2520, "at the standby")
        same(sorted(sa.inspect(standby).get_table_names("alembic_app")), ["alembic_version", "owner", "pet"], "tables there")
    with engine.begin() as connection:
        connection.execute(sa.schema.DropSchema("alembic_app", cascade=True))


if __name__ == "__main__":
    main()
