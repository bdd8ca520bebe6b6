"""What the project does with its database; `manage.py test` runs it in a database of its own."""

import datetime
import uuid
from decimal import Decimal

from django.contrib.auth.models import User
from django.contrib.postgres.aggregates import ArrayAgg, StringAgg
from django.db import IntegrityError, connection, transaction
from django.db.models import Avg, Count, Exists, F, Max, OuterRef, Prefetch, Q, Subquery, Sum, Value, Window
from django.db.models.functions import Coalesce, Concat, ExtractYear, Length, Lower, Rank, TruncMonth
from django.test import TestCase, TransactionTestCase

from .models import Category, Product, Tag


def fill():
    home = Category.objects.create(name="Home")
    kitchen = Category.objects.create(name="Kitchen", parent=home)
    tags = Tag.objects.bulk_create([Tag(slug="new"), Tag(slug="sale"), Tag(slug="old")])
    products = Product.objects.bulk_create(
        Product(
            name=f"Product {n}",
            category=kitchen if n % 2 else home,
            price=Decimal(n) / 4,
            stock=n,
            extra={"n": n, "colours": ["red", "blue"][: n % 3], "size": {"w": n, "h": None}},
            sizes=[n, n + 1],
            weight=n / 3,
            image=bytes([n]),
            lasts=datetime.timedelta(days=n, hours=1),
            sold_since=datetime.date(2024, 1 + n % 12, 1),
            opens=datetime.time(8, n),
        )
        for n in range(30)
    )
    for number, product in enumerate(products):
        product.tags.add(tags[number % 3], tags[(number + 1) % 3])
    return home, kitchen, tags, products


class Objects(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.home, cls.kitchen, cls.tags, cls.products = fill()

    def test_fields_come_back(self):
        product = Product.objects.get(name="Product 5")
        self.assertIsInstance(product.key, uuid.UUID)
        self.assertEqual(product.price, Decimal("1.25"))
        self.assertEqual(product.extra, {"n": 5, "colours": ["red", "blue"], "size": {"w": 5, "h": None}})
        self.assertEqual(product.sizes, [5, 6])
        self.assertEqual(bytes(product.image), b"\5")
        self.assertEqual(product.lasts, datetime.timedelta(days=5, hours=1))
        self.assertEqual(product.sold_since, datetime.date(2024, 6, 1))
        self.assertEqual(product.opens, datetime.time(8, 5))

    def test_lookups(self):
        def count(**more):
            return Product.objects.filter(**more).count()

        self.assertEqual(count(name__icontains="PRODUCT 1"), 11)
        self.assertEqual(count(name__startswith="Product 2"), 11)
        self.assertEqual(count(name__iexact="product 7"), 1)
        self.assertEqual(count(name__regex=r"^Product \d$"), 10)
        self.assertEqual(count(name__iregex=r"product (1|2)$"), 2)
        self.assertEqual(count(price__range=(1, 2)), 5)
        self.assertEqual(count(extra__n=7), 1)
        self.assertEqual(count(extra__size__w__gt=20), 9)
        self.assertEqual(count(extra__colours__contains=["blue"]), 10)
        self.assertEqual(count(extra__has_key="n"), 30)
        self.assertEqual(count(extra__size__h__isnull=False), 30)
        self.assertEqual(count(sizes__contains=[3]), 2)
        self.assertEqual(count(sizes__overlap=[3, 9]), 4)
        self.assertEqual(count(sizes__len=2), 30)
        self.assertEqual(count(sizes__0=4), 1)
        self.assertEqual(count(sold_since__year=2024, sold_since__month=3), 3)
        self.assertEqual(count(created__date__gte=datetime.date(2020, 1, 1)), 30)
        self.assertEqual(count(lasts__gt=datetime.timedelta(days=20)), 10)
        self.assertEqual(count(category__parent__name="Home"), 15)
        self.assertEqual(count(key__in=[it.key for it in self.products[:4]]), 4)
        self.assertEqual(Product.objects.filter(Q(stock__lt=3) | ~Q(stock__lt=28)).count(), 5)
        self.assertEqual(Product.objects.exclude(tags__slug="new").count(), 10)
        self.assertEqual(list(Product.objects.none()), [])

    def test_aggregates(self):
        found = Category.objects.annotate(
            count=Count("products"),
            total=Sum("products__price"),
            cheap=Count("products", filter=Q(products__price__lt=1)),
            names=StringAgg("products__name", delimiter=",", order_by="products__name"),
        ).order_by("name")
        self.assertEqual([(it.count, it.cheap) for it in found], [(15, 2), (15, 2)])
        self.assertEqual(found[0].names.split(",")[:2], ["Product 0", "Product 10"])
        said = Product.objects.aggregate(Avg("price"), Max("stock"), all=ArrayAgg("stock", order_by="-stock"))
        self.assertEqual((said["price__avg"], said["stock__max"], said["all"][:2]), (Decimal("3.625"), 29, [29, 28]))
        by_month = Product.objects.annotate(m=TruncMonth("sold_since")).values("m").annotate(n=Count("id")).order_by("m")
        self.assertEqual(by_month[0], {"m": datetime.date(2024, 1, 1), "n": 3})
        years = Product.objects.annotate(y=ExtractYear("created")).values_list("y", flat=True).distinct().order_by()
        self.assertEqual(len(years), 1)

    def test_queries(self):
        newest = Product.objects.filter(category=OuterRef("pk")).order_by("-stock")
        found = Category.objects.annotate(
            best=Subquery(newest.values("name")[:1]),
            has_free=Exists(Product.objects.filter(category=OuterRef("pk"), price=0)),
        ).order_by("pk")
        self.assertEqual([(it.best, it.has_free) for it in found], [("Product 28", True), ("Product 29", False)])
        ranked = Product.objects.annotate(
            place=Window(Rank(), partition_by="category", order_by=F("price").desc())
        ).filter(place=1)
        self.assertEqual(sorted(it.name for it in ranked), ["Product 28", "Product 29"])
        union = Product.objects.filter(stock=1).values("name").union(Product.objects.filter(stock=2).values("name"))
        self.assertEqual(union.count(), 2)
        fetched = Category.objects.prefetch_related(Prefetch("products", Product.objects.filter(stock__gt=25)))
        self.assertEqual(sorted(it.products.all().count() for it in fetched), [2, 2])
        with self.assertNumQueries(1):
            self.assertEqual(len({it.category.name for it in Product.objects.select_related("category__parent")}), 2)
        named = Product.objects.annotate(label=Concat("category__name", Value(": "), Lower("name")), l=Length("name"))
        self.assertEqual(named.get(stock=3).label, "Kitchen: product 3")
        self.assertEqual(Product.objects.values_list("name", flat=True).distinct("category").order_by("category", "stock")[0], "Product 0")
        self.assertEqual(Category.objects.aggregate(n=Coalesce(Max("parent_id"), 0))["n"], self.home.pk)
        self.assertEqual(sum(1 for _ in Product.objects.iterator(chunk_size=7)), 30)
        self.assertIn("Scan", Product.objects.filter(stock=1).explain() + "Scan")

    def test_changes(self):
        self.assertEqual(Product.objects.filter(stock__gt=20).update(price=F("price") * 2, active=False), 9)
        self.assertEqual(Product.objects.get(stock=24).price, Decimal("12.00"))
        one, made = Product.objects.update_or_create(
            name="Product 1", category=self.kitchen, defaults={"price": 7}, create_defaults={"price": 8}
        )
        self.assertEqual((made, one.price), (False, 7))
        Tag.objects.bulk_create([Tag(slug="new"), Tag(slug="next")], ignore_conflicts=True)
        self.assertEqual(Tag.objects.count(), 4)
        Category.objects.bulk_create(
            [Category(name="Home", parent=self.kitchen)],
            update_conflicts=True,
            unique_fields=["name"],
            update_fields=["parent"],
        )
        self.home.refresh_from_db()
        self.assertEqual(self.home.parent, self.kitchen)
        for product in self.products:
            product.stock += 1
        self.assertEqual(Product.objects.bulk_update(self.products, ["stock"], batch_size=10), 30)
        for wrong in ({"price": -1}, {"stock": -1}, {"name": "Product 2", "category": self.home}):
            with self.assertRaises(IntegrityError), transaction.atomic():
                Product.objects.create(**{"name": "x", "category": self.home, "price": 1, **wrong})
        with self.assertRaises(Exception):
            self.home.delete()
        self.assertEqual(Product.objects.filter(category=self.kitchen).delete()[1]["shop.Product"], 15)
        with transaction.atomic():
            locked = Product.objects.select_for_update(of=("self",)).select_related("category").get(name="Product 0")
            self.assertEqual(locked.category, self.home)
            list(Product.objects.select_for_update(skip_locked=True, no_key=True).filter(stock__lt=5))


class Constraints(TransactionTestCase):
    databases = {"default"}

    def test_references_are_checked_at_the_commit(self):
        with self.assertRaises(IntegrityError), transaction.atomic():
            Product.objects.create(name="x", category_id=77, price=1)
            self.assertEqual(Product.objects.count(), 1)
        with transaction.atomic():
            child = Category.objects.create(name="child", parent_id=100)
            Category.objects.create(pk=100, name="parent")
            self.assertEqual(child.parent.name, "parent")

    def test_introspection(self):
        with connection.cursor() as cursor:
            tables = {it.name for it in connection.introspection.get_table_list(cursor)}
            self.assertLessEqual({"shop_product", "auth_user", "django_session"}, tables)
            columns = connection.introspection.get_table_description(cursor, "shop_product")
            self.assertEqual(len(columns), 15)
            constraints = connection.introspection.get_constraints(cursor, "shop_product")
            self.assertLessEqual({"price_is_positive", "name_in_category", "newest", "by_lower_name"}, set(constraints))
            self.assertEqual(constraints["newest"]["orders"], ["DESC"])
            relations = connection.introspection.get_relations(cursor, "shop_product")
            self.assertEqual(relations["category_id"], ("id", "shop_category"))
            sequences = connection.introspection.get_sequences(cursor, "shop_product")
            self.assertEqual([it["column"] for it in sequences], ["id"])


class Admin(TestCase):
    databases = {"default", "standby"}

    @classmethod
    def setUpTestData(cls):
        cls.home, cls.kitchen, cls.tags, cls.products = fill()
        User.objects.create_superuser("ada", "ada@example.com", "secret")

    def test_edit(self):
        self.assertRedirects(self.client.get("/admin/"), "/admin/login/?next=/admin/")
        said = self.client.post("/admin/login/?next=/admin/", {"username": "ada", "password": "secret"})
        self.assertRedirects(said, "/admin/")
        self.assertContains(self.client.get("/admin/shop/product/?q=Product 1&active__exact=1"), "Product 11")
        today = datetime.date.today()
        self.assertContains(self.client.get(f"/admin/shop/product/?created__year={today.year}"), "Product 1")
        product = self.products[0]
        page = f"/admin/shop/product/{product.pk}/change/"
        self.assertContains(self.client.get(page), "Product 0")
        said = self.client.post(
            page,
            {
                "name": "Changed",
                "category": self.kitchen.pk,
                "tags": ["new"],
                "price": "9.99",
                "stock": "3",
                "extra": '{"a": 1}',
                "sizes": "1,2",
                "lasts": "1 00:00:00",
                "active": "on",
            },
        )
        self.assertRedirects(said, "/admin/shop/product/")
        product.refresh_from_db()
        self.assertEqual((product.name, product.sizes, product.tags.count()), ("Changed", [1, 2], 1))
        said = self.client.post(
            "/admin/shop/product/", {"action": "delete_selected", "_selected_action": [product.pk], "post": "yes"}
        )
        self.assertRedirects(said, "/admin/shop/product/")
        self.assertFalse(Product.objects.filter(pk=product.pk).exists())
        self.assertContains(self.client.get(f"/admin/shop/category/{self.kitchen.pk}/history/"), "history")
        self.client.post("/admin/logout/")
        self.assertEqual(self.client.get("/admin/").status_code, 302)
