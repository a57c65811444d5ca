"""Ten small tests of a shop, each with many numbers. All need the seed documents, and most change them."""

import pymongo
import pytest
import schema
from pymongo.errors import DuplicateKeyError, WriteError


def test_a_customer_is_found_by_address(db, number):
    customer = db.customers.find_one({"address": f"c{number}@example.org"})
    assert customer == schema.SEED["customers"][number]
    assert db.customers.count_documents({}) == 60


def test_an_address_is_unique(db, number):
    with pytest.raises(DuplicateKeyError):
        db.customers.insert_one({"address": f"c{number}@example.org", "name": "Impostor"})
    db.customers.insert_one({"address": f"new{number}@example.org", "name": "Newcomer"})
    assert db.customers.count_documents({}) == 61


def test_an_order_needs_its_lines(db, number):
    with pytest.raises(WriteError) as refused:
        db.orders.insert_one({"customer": number, "at": schema.NOON})
    assert refused.value.code == 121
    assert db.orders.count_documents({"customer": number}) == (2 if number < 40 else 1)


def test_an_order_reduces_the_stock(db, number):
    left = db.stock.find_one_and_update(
        {"product": number, "pieces": {"$gte": 2}},
        {"$inc": {"pieces": -2}},
        return_document=pymongo.ReturnDocument.AFTER,
    )
    assert left["pieces"] == 3 + number % 3
    order = {"customer": number, "lines": [{"product": number, "pieces": 2}], "state": "open", "at": schema.NOON}
    assert db.orders.insert_one(order).acknowledged
    assert db.orders.count_documents({"state": "open"}) == 21


def test_sold_out_products_are_not_sold(db, number):
    many = {"product": number, "pieces": {"$gte": 100}}
    assert db.stock.update_one(many, {"$inc": {"pieces": -100}}).modified_count == 0
    assert db.stock.find_one({"product": number})["pieces"] == 5 + number % 3


def test_pieces_sold_in_a_category(db, number):
    category = number % 10
    sold = db.orders.aggregate(
        [
            {"$unwind": "$lines"},
            {"$lookup": {"from": "products", "localField": "lines.product", "foreignField": "_id", "as": "product"}},
            {"$match": {"product.category": category}},
            {"$group": {"_id": None, "pieces": {"$sum": "$lines.pieces"}}},
        ]
    )
    lines = [line for order in schema.SEED["orders"] for line in order["lines"]]
    assert sold.to_list() == [
        {"_id": None, "pieces": sum(line["pieces"] for line in lines if line["product"] % 10 == category)}
    ]


def test_a_coupon_is_used_once(db, number):
    coupon = {"code": f"SAVE{number % 10}", "left": {"$gt": 0}}
    assert db.coupons.update_one(coupon, {"$inc": {"left": -1}}).modified_count == 1
    assert db.coupons.update_one(coupon, {"$inc": {"left": -1}}).modified_count == 0


def test_the_first_line_creates_a_cart(db, number):
    put = {"$push": {"lines": {"product": number, "pieces": 2}}, "$currentDate": {"touched": True}}
    made = db.carts.update_one({"customer": number}, put, upsert=True).upserted_id
    # The first 20 customers have one.
    assert (made is None) == (number < 20)
    assert len(db.carts.find_one({"customer": number})["lines"]) == (2 if number < 20 else 1)


def test_reviews_and_orders_are_deleted_with_the_customer(db, number):
    db.customers.delete_one({"_id": number})
    assert db.reviews.delete_many({"customer": number}).deleted_count == 1
    assert db.orders.delete_many({"customer": number}).deleted_count == (2 if number < 40 else 1)
    assert (db.customers.count_documents({}), db.reviews.count_documents({})) == (59, 59)


def test_a_page_of_products_by_price(db, number):
    db.products.update_one({"_id": number}, {"$set": {"price": 1}})
    page = db.products.find({}, {"_id": 1}).sort("price").skip(1).limit(10)
    rest = [n for n in range(80) if n != number]
    assert [product["_id"] for product in page] == rest[:10]
