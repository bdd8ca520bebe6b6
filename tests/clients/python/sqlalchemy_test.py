"""SQLAlchemy against a primary and its standby: what it finds in the catalogs, and its object-relational mapping."""

import os
from datetime import datetime, timezone
from decimal import Decimal

import sqlalchemy as sa
from sqlalchemy import exc, orm
from sqlalchemy.dialects import postgresql


def engine(name, **more):
    return sa.create_engine(f"postgresql+psycopg://freshet@127.0.0.1:{os.environ[name]}/freshet", **more)


def same(found, wanted, what):
    if found != wanted:
        raise SystemExit(f"{what}: expected {wanted!r}, found {found!r}")


def inspected(engine):
    inspector = sa.inspect(engine)
    same(inspector.default_schema_name, "public", "default schema")
    same({"app", "public", "information_schema"} <= set(inspector.get_schema_names()), True, "schemas")
    same(sorted(inspector.get_table_names("app")), ["customer", "line", "orders"], "tables")
    same(inspector.get_view_names("app"), ["owing"], "views")
    same(sorted(inspector.get_sequence_names("app")), ["customer_id_seq", "orders_id_seq", "ticket"], "sequences")
    same(inspector.has_table("customer", "app"), True, "has_table")
    same(inspector.has_table("customer"), False, "has_table in another schema")
    same(inspector.has_sequence("ticket", "app"), True, "has_sequence")
    columns = inspector.get_columns("customer", "app")
    same(
        [(column["name"], str(column["type"]), column["nullable"]) for column in columns],
        [
            ("id", "INTEGER", False),
            ("name", "TEXT", False),
            ("email", "VARCHAR(40)", True),
            ("born", "DATE", True),
            ("balance", "NUMERIC(12, 2)", False),
            ("created", "TIMESTAMP", False),
        ],
        "columns",
    )
    same(columns[0]["default"], "nextval('app.customer_id_seq'::regclass)", "a serial's default")
    same(columns[0]["autoincrement"], True, "a serial")
    same(columns[2]["comment"], "Where bills go", "a column's comment")
    same(columns[5]["type"].timezone, True, "with time zone")
    columns = {column["name"]: column for column in inspector.get_columns("orders", "app")}
    same(columns["id"]["identity"]["always"], True, "an identity")
    same(columns["id"]["identity"]["start"], 1, "an identity's start")
    same(str(columns["tags"]["type"].compile(postgresql.dialect())), "TEXT[]", "an array")
    same(isinstance(columns["details"]["type"], postgresql.JSONB), True, "jsonb")
    same(inspector.get_table_comment("customer", "app"), {"text": "Those who buy"}, "a table's comment")
    key = inspector.get_pk_constraint("line", "app")
    same((key["name"], key["constrained_columns"]), ("line_pkey", ["order", "Number"]), "primary key")
    keys = inspector.get_foreign_keys("orders", "app")
    same(len(keys), 1, "foreign keys")
    same(
        (keys[0]["name"], keys[0]["constrained_columns"], keys[0]["referred_schema"], keys[0]["referred_table"]),
        ("orders_customer_fkey", ["customer"], "app", "customer"),
        "foreign key",
    )
    same((keys[0]["referred_columns"], keys[0]["options"]), (["id"], {"ondelete": "CASCADE"}), "what a foreign key does")
    indexes = {index["name"]: index for index in inspector.get_indexes("orders", "app")}
    same(list(indexes), ["orders_customer"], "indexes")
    index = indexes["orders_customer"]
    same((index["column_names"], index["unique"]), (["customer", "id"], False), "index")
    same(index["column_sorting"], {"id": ("desc",)}, "an index's order")
    unique = inspector.get_unique_constraints("customer", "app")
    same([(it["name"], it["column_names"]) for it in unique], [("customer_email_key", ["email"])], "unique constraints")
    checks = inspector.get_check_constraints("line", "app")
    same([(it["name"], it["sqltext"]) for it in checks], [("cheap", "price < 10000::numeric")], "check constraints")
    same("customer" in inspector.get_view_definition("owing", "app"), True, "a view's definition")
    same(len(inspector.get_multi_columns("app", kind=sa.engine.reflection.ObjectKind.ANY)), 4, "columns of everything")
    same(inspector.get_table_options("customer", "app"), {}, "options")


def reflected(engine):
    metadata = sa.MetaData()
    metadata.reflect(engine, schema="app", views=True)
    same(sorted(metadata.tables), ["app.customer", "app.line", "app.orders", "app.owing"], "reflected tables")
    customer, orders = metadata.tables["app.customer"], metadata.tables["app.orders"]
    same([column.name for column in customer.primary_key], ["id"], "reflected primary key")
    same(next(iter(orders.c.customer.foreign_keys)).target_fullname, "app.customer.id", "reflected foreign key")
    with engine.connect() as connection:
        joined = sa.select(customer.c.name, sa.func.count(orders.c.id)).outerjoin(orders).group_by(customer.c.name)
        found = connection.execute(joined.where(customer.c.id <= 3).order_by(customer.c.name)).all()
        same(found, [("Ada", 2), ("Blaise", 0), ("Émilie", 1)], "a join of reflected tables")


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(50), unique=True)
    born: orm.Mapped[datetime | None] = orm.mapped_column(sa.DateTime(timezone=True))
    books: orm.Mapped[list["Book"]] = orm.relationship(
        back_populates="author", cascade="all, delete-orphan", order_by="Book.id"
    )


class Book(Base):
    __tablename__ = "book"
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"), index=True)
    title: orm.Mapped[str]
    price: orm.Mapped[Decimal] = orm.mapped_column(sa.Numeric(8, 2), server_default="0")
    tags: orm.Mapped[list[str]] = orm.mapped_column(postgresql.ARRAY(sa.Text))
    extra: orm.Mapped[dict] = orm.mapped_column(postgresql.JSONB)
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")
    __table_args__ = (sa.CheckConstraint("price >= 0", name="price_is_positive"), sa.UniqueConstraint("author_id", "title"))


def mapped(engine):
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)
    born = datetime(1775, 12, 16, tzinfo=timezone.utc)
    with orm.Session(engine) as session:
        session.add_all(
            [
                Author(
                    name="Jane",
                    born=born,
                    books=[
                        Book(title=f"Book {n}", price=Decimal(n) / 2, tags=["a", f"t{n}"], extra={"n": n, "list": [n]})
                        for n in range(30)
                    ],
                ),
                Author(name="Nobody"),
            ]
        )
        session.commit()
        jane = session.scalars(sa.select(Author).where(Author.name == "Jane")).one()
        same((jane.born, len(jane.books), jane.books[3].extra), (born, 30, {"n": 3, "list": [3]}), "what was written")
        loaded = session.scalars(sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.id)).all()
        same([len(author.books) for author in loaded], [30, 0], "loaded with a second query")
        loaded = session.scalars(sa.select(Author).options(orm.joinedload(Author.books)).order_by(Author.id)).unique().all()
        same([len(author.books) for author in loaded], [30, 0], "loaded with an outer join")
        jane.books[0].title = "Another"
        del jane.books[1]
        session.commit()
        counted = sa.select(sa.func.count(), sa.func.sum(Book.price)).select_from(Book)
        same(session.execute(counted).one(), (29, Decimal("217.00")), "after changes")
        tagged = session.scalars(sa.select(Book.title).where(sa.literal("t5") == sa.any_(Book.tags))).all()
        same(tagged, ["Book 5"], "= ANY of an array")
        inside = session.scalars(sa.select(Book.title).where(Book.extra["n"].as_integer() == 7)).all()
        same(inside, ["Book 7"], "a member of jsonb")
        held = session.scalars(sa.select(Book.title).where(Book.extra.contains({"n": 8}))).all()
        same(held, ["Book 8"], "@> of jsonb")
        ranked = sa.select(
            Book.title, sa.func.rank().over(partition_by=Book.author_id, order_by=Book.price.desc()).label("place")
        ).subquery()
        same(session.scalars(sa.select(ranked.c.title).where(ranked.c.place == 1)).all(), ["Book 29"], "a window")
        exists = sa.select(Author.name).where(~sa.exists().where(Book.author_id == Author.id))
        same(session.scalars(exists).all(), ["Nobody"], "NOT EXISTS")
        upsert = postgresql.insert(Author).values(name="Jane").on_conflict_do_update(
            index_elements=["name"], set_={"born": None}
        )
        session.execute(upsert)
        same(session.scalar(sa.select(Author.born).where(Author.name == "Jane")), None, "ON CONFLICT DO UPDATE")
        session.execute(sa.update(Book).where(Book.price < 2).values(price=Book.price + 1))
        session.execute(sa.delete(Book).where(Book.price > 10))
        session.commit()
        with_cte = sa.select(sa.func.count()).select_from(sa.select(Book).where(Book.price < 5).cte("cheap"))
        same(session.scalar(with_cte), 9, "WITH")
        try:
            with session.begin_nested():
                session.add(Author(name="Jane"))
                session.flush()
            raise SystemExit("a duplicate was taken")
        except exc.IntegrityError as error:
            same(error.orig.sqlstate, "23505", "a duplicate")
        streamed = session.execute(sa.select(Book.id).execution_options(yield_per=5)).scalars()
        same(len(list(streamed)), session.scalar(sa.select(sa.func.count()).select_from(Book)), "yield_per")
        session.delete(session.get(Author, jane.id))
        session.commit()
        same(session.scalar(sa.select(sa.func.count()).select_from(Book)), 0, "cascade")
    with engine.begin() as connection:
        connection.execute(sa.insert(Author), [{"name": f"a{n}"} for n in range(1000)])
        returned = connection.execute(sa.insert(Author).returning(Author.id), [{"name": f"b{n}"} for n in range(1500)]).all()
        same(len(returned), 1500, "many rows returned")
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
        same(connection.execute(sa.text("SHOW transaction_isolation")).scalar(), "serializable", "isolation")
    Base.metadata.drop_all(engine)
    same(sa.inspect(engine).has_table("author"), False, "dropped")


primary = engine("PRIMARY")
for name in ("PRIMARY", "STANDBY"):
    print(f"   inspection: {name.lower()}", flush=True)
    inspected(engine(name))
    reflected(engine(name))
print("   mapping", flush=True)
mapped(primary)
