from django.contrib import admin

from .models import Category, Product, Tag

admin.site.register(Tag)
admin.site.register(Category)


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ["name", "category", "price", "active"]
    list_filter = ["active", "category", "created"]
    search_fields = ["name", "category__name"]
    date_hierarchy = "created"
