"""Collections, validators, indexes and seed documents of a shop: the set-up of the suite."""

import datetime

NOON = datetime.datetime(2026, 1, 31, 12)


def required(**properties):
    """Returns a validator that requires these fields with these types."""
    fields = {name: {"bsonType": kind} for name, kind in properties.items()}
    return {"$jsonSchema": {"bsonType": "object", "required": list(properties), "properties": fields}}


VALIDATORS = {
    "categories": required(name="string"),
    "products": required(sku="string", category="int", price="int"),
    "stock": required(product="int", pieces="int"),
    "customers": required(address="string", name="string"),
    "orders": required(customer="int", lines="array", at="date"),
    "reviews": required(product="int", customer="int", stars="int"),
    "carts": required(customer="int", lines="array"),
    "coupons": required(code="string", left="int"),
}

# Keys and options of the indexes in addition to _id.
INDEXES = {
    "categories": [("name", {"unique": True})],
    "products": [
        ("sku", {"unique": True}),
        ([("category", 1), ("price", 1)], {}),
        ("tags", {}),
        ("price", {}),
    ],
    "stock": [("product", {"unique": True}), ("pieces", {})],
    "customers": [("address", {"unique": True}), ("name", {}), ([("country", 1), ("since", -1)], {})],
    "orders": [
        ([("customer", 1), ("at", -1)], {}),
        ("lines.product", {}),
        ("state", {"partialFilterExpression": {"state": "open"}}),
        ("at", {}),
    ],
    "reviews": [([("product", 1), ("customer", 1)], {"unique": True}), ("stars", {})],
    "carts": [("customer", {"unique": True}), ("touched", {"expireAfterSeconds": 86400})],
    "coupons": [("code", {"unique": True}), ("until", {"sparse": True})],
}

COUNTRIES = ["AT", "DE", "FR", "IT"]

SEED = {
    "categories": [{"_id": n, "name": f"category {n}"} for n in range(10)],
    "products": [
        {"_id": n, "sku": f"SKU-{n:04}", "category": n % 10, "price": 100 + n * 7, "tags": ["new", f"tag{n % 5}"]}
        for n in range(80)
    ],
    "stock": [{"_id": n, "product": n, "pieces": 5 + n % 3} for n in range(80)],
    "customers": [
        {"_id": n, "address": f"c{n}@example.org", "name": f"Customer {n}", "country": COUNTRIES[n % 4], "since": NOON}
        for n in range(60)
    ],
    "orders": [
        {
            "_id": n,
            "customer": n % 60,
            "lines": [{"product": (n + k) % 80, "pieces": 1 + k} for k in range(3)],
            "state": "open" if n % 5 == 0 else "sent",
            "at": NOON - datetime.timedelta(hours=n),
        }
        for n in range(100)
    ],
    "reviews": [{"_id": n, "product": n % 40, "customer": n % 60, "stars": 1 + n % 5} for n in range(60)],
    "carts": [{"_id": n, "customer": n, "lines": [{"product": n, "pieces": 1}]} for n in range(20)],
    "coupons": [{"_id": n, "code": f"SAVE{n}", "left": 1, "until": NOON} for n in range(10)],
}


def create(db):
    """Creates the collections with their validators and indexes."""
    from pymongo import IndexModel

    for name, validator in VALIDATORS.items():
        db.create_collection(name, validator=validator)
        db[name].create_indexes([IndexModel(keys, **options) for keys, options in INDEXES[name]])


def seed(db):
    """Inserts the seed documents of each test."""
    for name, documents in SEED.items():
        db[name].insert_many(documents)
