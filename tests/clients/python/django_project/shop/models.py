import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower


class Category(models.Model):
    name = models.CharField(max_length=50, unique=True)
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.CASCADE, related_name="children")

    class Meta:
        verbose_name_plural = "categories"

    def __str__(self):
        return self.name


class Tag(models.Model):
    slug = models.SlugField(primary_key=True)

    def __str__(self):
        return self.slug


class Product(models.Model):
    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=100, db_index=True)
    category = models.ForeignKey(Category, on_delete=models.PROTECT, related_name="products")
    tags = models.ManyToManyField(Tag, blank=True)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    stock = models.PositiveIntegerField(default=0)
    extra = models.JSONField(default=dict, blank=True)
    sizes = ArrayField(models.IntegerField(), default=list, blank=True)
    weight = models.FloatField(null=True, blank=True)
    image = models.BinaryField(null=True)
    lasts = models.DurationField(null=True, blank=True)
    sold_since = models.DateField(null=True, blank=True)
    opens = models.TimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)
    active = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=models.Q(price__gte=0), name="price_is_positive"),
            models.UniqueConstraint(fields=["category", "name"], name="name_in_category"),
            models.UniqueConstraint(
                fields=["name"], condition=models.Q(active=True, stock__gt=1000), name="one_big_stock"
            ),
        ]
        indexes = [
            models.Index(fields=["-created"], name="newest"),
            models.Index(Lower("name"), name="by_lower_name"),
            models.Index(fields=["price"], condition=models.Q(active=True), name="active_price"),
        ]

    def __str__(self):
        return self.name
