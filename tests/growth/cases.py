"""The cases of tests/growth/run: what grows, and the commands whose CPU time is measured.

A case has a name, a first n and the greatest n. `prepare(n)` returns commands that are not measured, and `measure(n)`
the measured commands. `sorts` allows n log n. `known` is the reason why a case is slow today.
"""

import dataclasses
import math
from typing import Callable

import bson


@dataclasses.dataclass
class Case:
    name: str
    prepare: Callable
    measure: Callable
    n: int = 500
    max_n: int = 60_000
    sorts: bool = False
    known: str | None = None


CASES = []


def case(name, prepare, measure, **options):
    CASES.append(Case(name, prepare, measure, **options))


# Data.
def insert(documents, collection="c"):
    """Returns inserts of a list of documents, within the limit of a command."""
    return [{"insert": collection, "documents": documents[at:at + 10_000]} for at in range(0, len(documents), 10_000)]


def mixed(number):
    """Returns a number in another order: each number below 2^20 once."""
    return number * 7_368_787 % (1 << 20)


def rows(n):
    return [{"_id": number, "a": mixed(number), "k": number % 10, "u": number} for number in range(n)]


def fields(n, value=1):
    return {f"f{number}": value for number in range(n)}


def numbers(n):
    return [mixed(number) for number in range(n)]


def many(n):
    return insert(rows(n))


def wide(n):
    return insert([{"_id": 1, **fields(n)}])


def array(n):
    return insert([{"_id": 1, "a": numbers(n), "d": [{"x": mixed(number), "y": 1} for number in range(n)]}])


def text(n):
    return insert([{"_id": 1, "s": ("lorem ipsum dolor " * (n // 18 + 1))[:n]}])


def one(_):
    return insert([{"_id": 1, "a": 1, "s": "text"}])


def empty(_):
    return [{"create": "c"}]


def indexed(make, *keys, collection="c", **options):
    """Returns a preparation with indexes."""
    def prepare(n):
        specs = [{"key": key, "name": f"i{at}", **options} for at, key in enumerate(keys)]
        return [{"createIndexes": collection, "indexes": specs}] + make(n)
    return prepare


def aggregate(*stages, collection="c", **options):
    return [{"aggregate": collection, "pipeline": list(stages), "cursor": {}, **options}]


def find(query, **options):
    return [{"find": "c", "filter": query, **options}]


def update(change, query=None, **options):
    return [{"update": "c", "updates": [{"q": query or {}, "u": change, **options}]}]


# Expressions over an array of n elements, and over an array of n documents.
IS_ODD = {"$eq": [{"$mod": ["$$this", 2]}, 1]}
OF_ARRAY = {
    "$map": {"$map": {"input": "$a", "in": {"$add": ["$$this", 1]}}},
    "$filter": {"$filter": {"input": "$a", "cond": IS_ODD}},
    "$filter $in": {"$filter": {"input": "$a", "cond": {"$in": ["$$this", [1, 2, 3]]}}},
    "$reduce $add": {"$reduce": {"input": "$a", "initialValue": 0, "in": {"$add": ["$$this", "$$value"]}}},
    "$reduce $concatArrays": {
        "$reduce": {"input": "$a", "initialValue": [], "in": {"$concatArrays": ["$$value", ["$$this"]]}}},
    "$reduce $concatArrays in front": {
        "$reduce": {"input": "$a", "initialValue": [], "in": {"$concatArrays": [["$$this"], "$$value"]}}},
    "$reduce $concat": {
        "$reduce": {"input": "$a", "initialValue": "", "in": {"$concat": ["$$value", {"$toString": "$$this"}]}}},
    "$reduce $setUnion": {
        "$reduce": {"input": "$a", "initialValue": [], "in": {"$setUnion": ["$$value", ["$$this"]]}}},
    "$reduce $mergeObjects": {"$reduce": {"input": "$a", "initialValue": {}, "in": {"$mergeObjects": [
        "$$value", {"$arrayToObject": [[[{"$toString": "$$this"}, 1]]]}]}}},
    "$reverseArray": {"$reverseArray": "$a"},
    "$zip": {"$zip": {"inputs": ["$a", "$a"]}},
    "$concatArrays": {"$concatArrays": ["$a", "$a"]},
    "$slice": {"$slice": ["$a", 10, 1_000_000]},
    "$indexOfArray": {"$indexOfArray": ["$a", -1]},
    "$in": {"$in": [-1, "$a"]},
    "$size": {"$size": "$a"},
    "$arrayElemAt": {"$arrayElemAt": ["$a", -1]},
    "$sum": {"$sum": "$a"},
    "$avg": {"$avg": "$a"},
    "$max": {"$max": "$a"},
    "$stdDevPop": {"$stdDevPop": "$a"},
    "$maxN": {"$maxN": {"input": "$a", "n": 10}},
    "$firstN": {"$firstN": {"input": "$a", "n": 1_000_000}},
    "$lastN": {"$lastN": {"input": "$a", "n": 1_000_000}},
    "$median": {"$median": {"input": "$a", "method": "approximate"}},
    "$anyElementTrue": {"$anyElementTrue": ["$a"]},
    "$allElementsTrue": {"$allElementsTrue": ["$a"]},
    "$mergeObjects": {"$mergeObjects": "$d"},
    "$arrayToObject": {"$arrayToObject": {"$map": {"input": "$a", "in": {"k": {"$toString": "$$this"}, "v": 1}}}},
    "$objectToArray": {"$objectToArray": {
        "$arrayToObject": {"$map": {"input": "$a", "in": [{"$toString": "$$this"}, 1]}}}},
    "path through documents": "$d.x",
    "$eq": {"$eq": ["$a", {"$concatArrays": ["$a", []]}]},
    "$toHashedIndexKey": {"$toHashedIndexKey": "$a"},
    "$bsonSize": {"$bsonSize": "$$ROOT"},
    "$range": {"$range": [0, {"$size": "$a"}]},
    "$setField": {"$setField": {"field": "z", "input": "$$ROOT", "value": "$a"}},
    "$unsetField": {"$unsetField": {"field": "d", "input": "$$ROOT"}},
    "$getField": {"$getField": {"field": "d", "input": "$$ROOT"}},
}
SORTING_ARRAY = {
    "$sortArray": {"$sortArray": {"input": "$a", "sortBy": 1}},
    "$sortArray by field": {"$sortArray": {"input": "$d", "sortBy": {"x": 1}}},
    "$setUnion": {"$setUnion": ["$a", "$a"]},
    "$setIntersection": {"$setIntersection": ["$a", "$a"]},
    "$setDifference": {"$setDifference": ["$a", [1]]},
    "$setEquals": {"$setEquals": ["$a", "$a"]},
    "$setIsSubset": {"$setIsSubset": ["$a", "$a"]},
    "$maxN of all": {"$maxN": {"input": "$a", "n": 1_000_000}},
    "$minN of all": {"$minN": {"input": "$a", "n": 1_000_000}},
    "$percentile": {"$percentile": {"input": "$a", "p": [0.1, 0.9], "method": "approximate"}},
    "$filter $in the array": {"$filter": {"input": [1, 2, 3], "cond": {"$in": ["$$this", "$a"]}}},
    "$map $indexOfArray": {"$map": {"input": [1, 2, 3], "in": {"$indexOfArray": ["$a", "$$this"]}}},
}
for name, expression in OF_ARRAY.items():
    case(f"expression {name}", array, lambda n, e=expression: aggregate({"$project": {"r": e}}))
for name, expression in SORTING_ARRAY.items():
    case(f"expression {name}", array, lambda n, e=expression: aggregate({"$project": {"r": e}}), sorts=True)

# Expressions over a text of n bytes.
OF_TEXT = {
    "$split": {"$split": ["$s", " "]},
    "$replaceAll": {"$replaceAll": {"input": "$s", "find": "ipsum", "replacement": "x"}},
    "$replaceOne": {"$replaceOne": {"input": "$s", "find": "none", "replacement": "x"}},
    "$indexOfBytes": {"$indexOfBytes": ["$s", "none"]},
    "$indexOfCP": {"$indexOfCP": ["$s", "none"]},
    "$substrCP": {"$substrCP": ["$s", 10, 1_000_000]},
    "$substrBytes": {"$substrBytes": ["$s", 10, 1_000_000]},
    "$strLenCP": {"$strLenCP": "$s"},
    "$toUpper": {"$toUpper": "$s"},
    "$trim": {"$trim": {"input": {"$concat": [" ", "$s", " "]}}},
    "$regexFind": {"$regexFind": {"input": "$s", "regex": "none|never"}},
    "$regexFindAll": {"$regexFindAll": {"input": "$s", "regex": "[a-z]+"}},
    "$regexMatch": {"$regexMatch": {"input": "$s", "regex": "(a|b)+c"}},
    "$strcasecmp": {"$strcasecmp": ["$s", {"$concat": ["$s", "a"]}]},
    "$concat": {"$concat": ["$s", "$s"]},
    "$toHashedIndexKey of text": {"$toHashedIndexKey": "$s"},
}
for name, expression in OF_TEXT.items():
    case(f"expression {name}", text, lambda n, e=expression: aggregate({"$project": {"r": e}}), n=20_000, max_n=1_000_000)

# Expressions with n operands.
OPERANDS = {
    "$add": lambda n: {"$add": ["$a"] * n},
    "$concat": lambda n: {"$concat": ["$s"] * n},
    "$concatArrays": lambda n: {"$concatArrays": [["$a"]] * n},
    "$and": lambda n: {"$and": [{"$eq": ["$a", 1]}] * n},
    "$or": lambda n: {"$or": [{"$eq": ["$a", 2]}] * n},
    "$switch": lambda n: {"$switch": {"branches": [{"case": {"$eq": ["$a", -1]}, "then": 1}] * n, "default": 0}},
    "$let": lambda n: {"$let": {"vars": {f"v{at}": "$a" for at in range(n)}, "in": f"$$v{n - 1}"}},
    "$let that uses all": lambda n: {
        "$let": {"vars": {f"v{at}": "$a" for at in range(n)}, "in": {"$add": [f"$$v{at}" for at in range(n)]}}},
    "document": lambda n: {f"f{at}": "$a" for at in range(n)},
    "array": lambda n: ["$a"] * n,
    "$mergeObjects": lambda n: {"$mergeObjects": [{f"f{at}": "$a"} for at in range(n)]},
    "$setUnion": lambda n: {"$setUnion": [["$a", at] for at in range(n)]},
    "$ifNull": lambda n: {"$ifNull": ["$missing"] * n + [1]},
    "$max": lambda n: {"$max": ["$a"] * n},
    "constant array": lambda n: {"$in": ["$a", numbers(n)]},
    "constant document": lambda n: {"$eq": ["$a", {"$literal": fields(n)}]},
}
for name, expression in OPERANDS.items():
    case(f"operands of {name}", one, lambda n, e=expression: aggregate({"$project": {"r": e(n)}}), max_n=50_000)

# An expression with a constant of n values, over n documents.
CONSTANTS = {
    "$in": lambda n: {"$in": ["$a", list(range(2_000_000, 2_000_000 + n))]},
    "$in texts": lambda n: {"$in": ["$s", [f"text {at}" for at in range(n)]]},
    "$indexOfArray": lambda n: {"$gte": [{"$indexOfArray": [list(range(2_000_000, 2_000_000 + n)), "$a"]}, 0]},
    "$setIsSubset": lambda n: {"$setIsSubset": [["$a"], list(range(2_000_000, 2_000_000 + n))]},
    "$getField": lambda n: {"$getField": {"field": {"$toString": "$a"}, "input": {"$literal": fields(n)}}},
    "$arrayElemAt": lambda n: {"$eq": [{"$arrayElemAt": [list(range(n)), {"$mod": ["$a", n]}]}, -1]},
}
for name, expression in CONSTANTS.items():
    case(f"constant of n for n documents: {name}", many, lambda n, e=expression: find({"$expr": e(n)}), sorts=True)

# Filters.
FILTERS = {
    "$or": (one, lambda n: {"$or": [{"a": -at - 1} for at in range(n)]}),
    "$or of ranges": (one, lambda n: {"$or": [{"a": {"$gt": at + 10}} for at in range(n)]}),
    "$or of fields": (wide, lambda n: {"$or": [{f"f{at}": 2} for at in range(n)]}),
    "$and": (one, lambda n: {"$and": [{"a": {"$gt": -at}} for at in range(n)]}),
    "$nor": (one, lambda n: {"$nor": [{"a": -at - 1} for at in range(n)]}),
    "fields": (wide, lambda n: fields(n)),
    "$in": (one, lambda n: {"a": {"$in": numbers(n)}}),
    "$nin": (one, lambda n: {"a": {"$nin": numbers(n)}}),
    "$in of texts": (one, lambda n: {"s": {"$in": [f"x{at}" for at in range(n)]}}),
    "$in of patterns": (one, lambda n: {"s": {"$in": [bson.Regex(f"^x{at}y") for at in range(n)]}}),
    "$in of n for an array of n": (array, lambda n: {"a": {"$in": [-at - 1 for at in range(n)]}}),
    "$all of n for an array of n": (array, lambda n: {"a": {"$all": numbers(n)}}),
    "$elemMatch": (array, lambda n: {"d": {"$elemMatch": {"x": -1, "y": 1}}}),
    "equality with an array": (array, lambda n: {"a": numbers(n)}),
    "$size": (array, lambda n: {"a": {"$size": n}}),
    "path through documents": (array, lambda n: {"d.x": -1}),
    "$bitsAllSet": (one, lambda n: {"a": {"$bitsAllSet": list(range(n))}}),
    "$type": (one, lambda n: {"a": {"$type": ["string"] * n}}),
    "$jsonSchema properties": (wide, lambda n: {
        "$jsonSchema": {"properties": {f"f{at}": {"minimum": 0} for at in range(n)}}}),
    "$jsonSchema required": (wide, lambda n: {"$jsonSchema": {"required": [f"f{at}" for at in range(n)]}}),
    "$jsonSchema no additionalProperties": (wide, lambda n: {"$jsonSchema": {
        "properties": {"_id": {}, **{f"f{at}": {} for at in range(n)}}, "additionalProperties": False}}),
    "$jsonSchema enum": (one, lambda n: {"$jsonSchema": {"properties": {"a": {"enum": list(range(2, n + 2))}}}}),
    "$jsonSchema uniqueItems": (array, lambda n: {"$jsonSchema": {"properties": {"a": {"uniqueItems": True}}}}),
    "$jsonSchema patternProperties": (wide, lambda n: {
        "$jsonSchema": {"patternProperties": {"^f": {"minimum": 0}}}}),
    "regular expression": (text, lambda n: {"s": bson.Regex("(a|b)+c")}),
    "$geoWithin polygon": (one, lambda n: {"a": {"$geoWithin": {"$polygon": ring(n)}}}),
}


def ring(n):
    return [[math.cos(2 * math.pi * at / n), math.sin(2 * math.pi * at / n)] for at in range(n)]


for name, (prepare, query) in FILTERS.items():
    case(f"filter {name}", prepare, lambda n, q=query: find(q(n)), sorts=True, max_n=50_000)
case("filter $in of n for n documents", many, lambda n: find({"a": {"$in": [-at - 1 for at in range(n)]}}), sorts=True)
case("filter $in by _id", many, lambda n: find({"_id": {"$in": list(range(n))}}), sorts=True)
case("filter $in by index", indexed(many, {"a": 1}), lambda n: find({"a": {"$in": numbers(n)}}), sorts=True)
case("filter $or by index", indexed(many, {"a": 1}),
     lambda n: find({"$or": [{"a": mixed(at)} for at in range(n)]}), sorts=True, max_n=50_000)
case("filter $or of fields by indexes", indexed(many, {"a": 1}, {"u": 1}),
     lambda n: find({"$or": [{("a", "u")[at % 2]: at} for at in range(n)]}), sorts=True, max_n=50_000)
case("filter $nin by index", indexed(many, {"a": 1}), lambda n: find({"a": {"$nin": numbers(n)}}), sorts=True)
case("filter nested documents", lambda n: insert([{"_id": 1, "a": [{"b": [{"c": at}] * 3} for at in range(n)]}]),
     lambda n: find({"a.b.c": -1}))

# Projections of find.
case("projection of n fields", wide, lambda n: find({}, projection=fields(n)), sorts=True)
case("projection without n fields", wide, lambda n: find({}, projection=fields(n, 0)), sorts=True)
case("projection of n dotted fields", lambda n: insert([{"a": fields(n)}]),
     lambda n: find({}, projection={f"a.{name}": 1 for name in fields(n)}), sorts=True)
case("projection of n computed fields", one, lambda n: find({}, projection={f"f{at}": "$a" for at in range(n)}))
case("projection $elemMatch", array, lambda n: find({}, projection={"d": {"$elemMatch": {"x": -1}}}))
case("projection $slice", array, lambda n: find({}, projection={"a": {"$slice": -10}}))
case("projection $", array, lambda n: find({"a": mixed(n - 1)}, projection={"a.$": 1}))
case("sort by an array of n", array, lambda n: find({}, sort={"a": 1}))
case("sort by two paths of an array of n", array, lambda n: find({}, sort={"d.x": 1, "d.y": 1}))

# Updates of one document.
UPDATES = {
    "$set n new fields": (one, lambda n: {"$set": fields(n)}),
    "$set n fields": (wide, lambda n: {"$set": fields(n, 2)}),
    "$set n fields backwards": (wide, lambda n: {"$set": dict(reversed(fields(n, 2).items()))}),
    "$set n dotted fields": (lambda n: insert([{"_id": 1, "a": fields(n)}]),
                             lambda n: {"$set": {f"a.{name}": 2 for name in fields(n)}}),
    "$set n elements": (array, lambda n: {"$set": {f"a.{at}": -1 for at in range(n)}}),
    "$unset n fields": (wide, lambda n: {"$unset": fields(n)}),
    "$inc n fields": (wide, lambda n: {"$inc": fields(n)}),
    "$rename n fields": (wide, lambda n: {"$rename": {name: f"x{name}" for name in fields(n)}}),
    "$push $each": (array, lambda n: {"$push": {"a": {"$each": numbers(n)}}}),
    "$push $position": (array, lambda n: {"$push": {"a": {"$each": numbers(n), "$position": 0}}}),
    "$push $sort": (array, lambda n: {"$push": {"a": {"$each": numbers(n), "$sort": 1}}}),
    "$push $sort by field": (array, lambda n: {"$push": {"d": {"$each": [{"x": at} for at in range(n)], "$sort": {"x": 1}}}}),
    "$push $slice": (array, lambda n: {"$push": {"a": {"$each": numbers(n), "$slice": n}}}),
    "$addToSet $each": (array, lambda n: {"$addToSet": {"a": {"$each": [-at for at in range(n)]}}}),
    "$addToSet $each of documents": (array, lambda n: {"$addToSet": {"d": {"$each": [{"x": -at} for at in range(n)]}}}),
    "$pull": (array, lambda n: {"$pull": {"d": {"x": {"$gt": 1000}}}}),
    "$pull $in": (array, lambda n: {"$pull": {"a": {"$in": numbers(n)}}}),
    "$pullAll": (array, lambda n: {"$pullAll": {"a": [-at for at in range(n)]}}),
    "$pullAll of documents": (array, lambda n: {"$pullAll": {"d": [{"x": -at} for at in range(n)]}}),
    "$pop": (array, lambda n: {"$pop": {"a": -1}}),
    "$[]": (array, lambda n: {"$inc": {"a.$[]": 1}}),
    "$[].x": (array, lambda n: {"$inc": {"d.$[].x": 1}}),
    "replacement": (wide, lambda n: fields(n, 2)),
    "pipeline $set": (wide, lambda n: [{"$set": fields(n, 2)}]),
    "pipeline $unset": (wide, lambda n: [{"$unset": list(fields(n))}]),
    "pipeline $replaceWith": (wide, lambda n: [{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"x": 1}]}}]),
    "one of n fields": (wide, lambda n: {"$set": {f"f{n // 2}": 3}}),
    "one of n elements": (array, lambda n: {"$set": {f"a.{n // 2}": -3}}),
}
for name, (prepare, change) in UPDATES.items():
    case(f"update {name}", prepare, lambda n, c=change: update(c(n)), sorts=True, max_n=100_000)
case("update upsert $setOnInsert", empty, lambda n: update({"$setOnInsert": fields(n)}, {"x": 1}, upsert=True), sorts=True)
case("update upsert of n conditions", empty, lambda n: update({"$set": {"x": 1}}, fields(n), upsert=True), sorts=True,
     max_n=50_000)
case("update $[x]", array, lambda n: update({"$inc": {"a.$[x]": 1}}, arrayFilters=[{"x": {"$gt": 1000}}]))
case("update n array filters", array, lambda n: update(
    {"$inc": {f"a.$[x{at}]": 1 for at in range(n)}}, arrayFilters=[{f"x{at}": -at - 1} for at in range(n)]),
    n=2, max_n=16)
case("update n documents", many, lambda n: update({"$inc": {"a": 1}}, multi=True))
case("update n documents with index", indexed(many, {"a": 1}), lambda n: update({"$inc": {"a": 1}}, multi=True), sorts=True)
case("update of one of n elements, multikey", indexed(array, {"a": 1}),
     lambda n: update({"$set": {f"a.{n // 2}": -3}}), sorts=True)
case("update $push of one element, multikey", indexed(array, {"a": 1}), lambda n: update({"$push": {"a": -3}}), sorts=True)
case("update of n elements, multikey", indexed(array, {"a": 1}), lambda n: update({"$inc": {"a.$[]": 1}}), sorts=True)
case("update of one field beside n, wildcard", indexed(wide, {"$**": 1}), lambda n: update({"$set": {"f0": 3}}), sorts=True)
case("findAndModify $set n fields", wide, lambda n: [
    {"findAndModify": "c", "query": {}, "update": {"$set": fields(n, 2)}, "new": True}], sorts=True)
case("findAndModify with fields", wide, lambda n: [
    {"findAndModify": "c", "query": {}, "update": {"$set": {"f0": 2}}, "fields": fields(n)}], sorts=True)

# Stages over n documents.
STAGES = {
    "$match": [{"$match": {"a": {"$gt": 1000}}}],
    "$group": [{"$group": {"_id": "$k", "n": {"$sum": "$a"}}}],
    "$group of n": [{"$group": {"_id": "$a", "n": {"$sum": 1}}}],
    "$group of n documents": [{"$group": {"_id": {"x": "$a", "y": "$k"}}}],
    **{f"$group {name}": [{"$group": {"_id": None, "r": {name.split()[0]: argument}}}] for name, argument in {
        "$push": "$a", "$addToSet": "$a", "$avg": "$a", "$max": "$a",
        "$first": "$a", "$last": "$a", "$stdDevPop": "$a", "$firstN": {"input": "$a", "n": 1_000_000},
        "$lastN": {"input": "$a", "n": 1_000_000}, "$maxN": {"input": "$a", "n": 1_000_000},
        "$topN": {"output": "$a", "sortBy": {"u": 1}, "n": 1_000_000},
        "$bottomN": {"output": "$a", "sortBy": {"u": -1}, "n": 1_000_000},
        "$top": {"output": "$a", "sortBy": {"u": 1}}, "$median": {"input": "$a", "method": "approximate"},
        "$mergeObjects": {"$arrayToObject": [[[{"$toString": "$a"}, 1]]]},
        "$mergeObjects of equal fields": {"x": "$a"}, "$count": {}}.items()},
    "$bucketAuto": [{"$bucketAuto": {"groupBy": "$a", "buckets": 100}}],
    "$bucketAuto of n": [{"$bucketAuto": {"groupBy": "$a", "buckets": 1_000_000}}],
    "$sortByCount": [{"$sortByCount": "$a"}],
    "$sort": [{"$sort": {"a": 1}}],
    "$sort with $limit": [{"$sort": {"a": 1}}, {"$limit": 100}],
    "$sample": [{"$sample": {"size": 100}}],
    "$sample of n": [{"$sample": {"size": 1_000_000}}],
    "$count": [{"$count": "n"}],
    "$skip": [{"$skip": 100}],
    "$unionWith": [{"$unionWith": "c"}],
    "$out": [{"$out": "o"}],
    "$merge": [{"$merge": "o"}],
    "$merge into itself": [{"$set": {"z": 1}}, {"$merge": "c"}],
    "$merge pipeline": [{"$merge": {"into": "c", "whenMatched": [{"$set": {"z": "$$new.a"}}]}}],
    "$fill": [{"$fill": {"sortBy": {"a": 1}, "output": {"z": {"method": "locf"}}}}],
    "$fill linear": [{"$fill": {"sortBy": {"a": 1}, "output": {"z": {"method": "linear"}}}}],
    "$densify": [{"$densify": {"field": "u", "range": {"step": 0.5, "bounds": "full"}}}],
    "$facet": [{"$facet": {"x": [{"$count": "n"}], "y": [{"$group": {"_id": "$k"}}]}}],
    "$redact": [{"$redact": {"$cond": [{"$eq": ["$k", 1]}, "$$PRUNE", "$$KEEP"]}}],
    "$replaceRoot": [{"$replaceRoot": {"newRoot": {"$mergeObjects": ["$$ROOT", {"z": 1}]}}}],
    "$lookup of equal fields": [{"$lookup": {"from": "c", "localField": "a", "foreignField": "a", "as": "r"}}],
    "$lookup with $unwind": [
        {"$lookup": {"from": "c", "localField": "a", "foreignField": "a", "as": "r"}}, {"$unwind": "$r"}],
    "$lookup by _id": [{"$lookup": {"from": "c", "localField": "u", "foreignField": "_id", "as": "r"}}],
    "$lookup with pipeline": [{"$lookup": {"from": "c", "localField": "a", "foreignField": "a", "as": "r",
                                           "pipeline": [{"$project": {"k": 1}}]}}],
    "$lookup $expr": [{"$lookup": {"from": "c", "let": {"x": "$a"}, "as": "r",
                                   "pipeline": [{"$match": {"$expr": {"$eq": ["$a", "$$x"]}}}]}}],
    "$lookup $expr by _id": [{"$lookup": {"from": "c", "let": {"x": "$u"}, "as": "r",
                                          "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", "$$x"]}}}]}}],
    "$lookup without variables": [{"$match": {"k": 1}}, {"$lookup": {"from": "c", "as": "r", "pipeline": [
        {"$match": {"u": -1}}]}}],
    "$graphLookup": [{"$graphLookup": {"from": "c", "startWith": "$a", "connectFromField": "missing",
                                       "connectToField": "_id", "as": "r"}}],
    "$graphLookup without index": [{"$limit": 1}, {"$graphLookup": {
        "from": "c", "startWith": 1, "connectFromField": "k", "connectToField": "k", "as": "r", "maxDepth": 3}}],
    **{f"$setWindowFields {name}": [{"$setWindowFields": {"sortBy": {"u": 1}, "output": {"r": operation}}}]
       for name, operation in {
        "$sum": {"$sum": "$a", "window": {"documents": ["unbounded", "current"]}},
        "$sum from current": {"$sum": "$a", "window": {"documents": ["current", "unbounded"]}},
        "$sum of all": {"$sum": "$a"},
        "$max": {"$max": "$a", "window": {"documents": ["unbounded", "current"]}},
        "$max from current": {"$max": "$a", "window": {"documents": ["current", "unbounded"]}},
        "$max around": {"$max": "$a", "window": {"documents": [-100, 100]}},
        "$sum of a range": {"$sum": "$a", "window": {"range": [-100, 100]}},
        "$avg": {"$avg": "$a", "window": {"documents": ["unbounded", "current"]}},
        "$stdDevPop": {"$stdDevPop": "$a", "window": {"documents": [-100, 0]}},
        "$rank": {"$rank": {}}, "$denseRank": {"$denseRank": {}}, "$documentNumber": {"$documentNumber": {}},
        "$shift": {"$shift": {"output": "$a", "by": 1}},
        "$expMovingAvg": {"$expMovingAvg": {"input": "$a", "N": 3}},
        "$derivative": {"$derivative": {"input": "$a"}, "window": {"documents": [-1, 0]}},
        "$integral": {"$integral": {"input": "$a"}, "window": {"documents": ["unbounded", "current"]}},
        "$covariancePop": {"$covariancePop": ["$a", "$u"], "window": {"documents": ["unbounded", "current"]}},
        "$first": {"$first": "$a", "window": {"documents": ["unbounded", "current"]}},
        "$last from current": {"$last": "$a", "window": {"documents": ["current", "unbounded"]}},
        "$count": {"$count": {}, "window": {"documents": ["unbounded", "current"]}},
        "$top": {"$top": {"output": "$a", "sortBy": {"a": 1}}, "window": {"documents": ["unbounded", "current"]}},
        "$topN around": {"$topN": {"output": "$a", "sortBy": {"a": 1}, "n": 3}, "window": {"documents": [-1000, 0]}},
        "$minN": {"$minN": {"input": "$a", "n": 3}, "window": {"documents": ["unbounded", "current"]}},
        "$median": {"$median": {"input": "$a", "method": "approximate"}},
        "$locf": {"$locf": "$missing"}, "$linearFill": {"$linearFill": "$missing"},
        "$push around": {"$push": "$a", "window": {"documents": [-3, 3]}},
        "$addToSet of k": {"$addToSet": "$k", "window": {"documents": ["unbounded", "current"]}},
    }.items()},
    "$setWindowFields of n partitions": [{"$setWindowFields": {
        "partitionBy": "$a", "sortBy": {"u": 1}, "output": {"r": {"$sum": "$a"}}}}],
}
LOOKUPS = dict(n=200, max_n=30_000)
for name, pipeline in STAGES.items():
    case(f"stage {name}", many, lambda n, p=pipeline: aggregate(*p), sorts=True,
         **(LOOKUPS if "ookup" in name else {}))
case("stage $lookup by an array of n", lambda n: many(n) + insert([{"a": numbers(n)}], "l"),
     lambda n: aggregate({"$lookup": {"from": "c", "localField": "a", "foreignField": "a", "as": "r"}}, collection="l"),
     sorts=True, **LOOKUPS)
case("stage $lookup by index", indexed(many, {"a": 1}), lambda n: aggregate(*STAGES["$lookup of equal fields"]), sorts=True)
case("stage $graphLookup of a chain", indexed(lambda n: insert([{"_id": at, "next": at + 1} for at in range(n)]), {"next": 1}),
     lambda n: aggregate({"$limit": 1}, {"$graphLookup": {"from": "c", "startWith": "$next", "connectFromField": "next",
                                                         "connectToField": "_id", "as": "r"}}, {"$unset": "r"}),
     sorts=True, max_n=50_000)
case("stage $graphLookup of a star", indexed(lambda n: insert([{"_id": at, "next": list(range(1, n)) if at == 0 else []}
                                                              for at in range(n)]), {"k": 1}),
     lambda n: aggregate({"$match": {"_id": 0}}, {"$graphLookup": {
         "from": "c", "startWith": "$_id", "connectFromField": "next", "connectToField": "_id", "as": "r"}}), sorts=True)
case("stage $unwind", array, lambda n: aggregate({"$unwind": "$a"}, {"$project": {"a": 1}}), max_n=4_000)
case("stage $unwind and $group", array, lambda n: aggregate(
    {"$project": {"a": 1}}, {"$unwind": "$a"}, {"$group": {"_id": None, "a": {"$push": "$a"}}}))
case("stage $unwind of one field of two", lambda n: insert([{"a": numbers(n), "b": 1}]), lambda n: aggregate({"$unwind": "$a"}))
case("stage $densify of n", lambda n: insert([{"u": 0}, {"u": n}]),
     lambda n: aggregate({"$densify": {"field": "u", "range": {"step": 1, "bounds": "full"}}}))
case("stage $redact of n documents within", array, lambda n: aggregate({"$redact": {
    "$cond": [{"$eq": ["$y", 2]}, "$$PRUNE", "$$DESCEND"]}}))

# Stages whose specification has n parts.
SPECIFIED = {
    "$set": (one, lambda n: {"$set": {f"f{at}": "$a" for at in range(n)}}),
    "$set of n fields": (wide, lambda n: {"$set": {f"f{at}": "$_id" for at in range(n)}}),
    "$set of n dotted fields": (one, lambda n: {"$set": {f"x.f{at}": "$a" for at in range(n)}}),
    "$unset": (wide, lambda n: {"$unset": list(fields(n))}),
    "$project": (wide, lambda n: {"$project": fields(n)}),
    "$project without": (wide, lambda n: {"$project": fields(n, 0)}),
    "$project computed": (one, lambda n: {"$project": {f"f{at}": "$a" for at in range(n)}}),
    "$project renamed": (wide, lambda n: {"$project": {f"x{at}": f"$f{at}" for at in range(n)}}),
    "$group": (one, lambda n: {"$group": {"_id": None, **{f"f{at}": {"$sum": "$a"} for at in range(n)}}}),
    "$group by n fields": (wide, lambda n: {"$group": {"_id": {f"f{at}": f"$f{at}" for at in range(n)}}}),
    "$documents": (one, lambda n: {"$match": {"a": {"$in": numbers(n)}}}),
    "$replaceWith": (one, lambda n: {"$replaceWith": {f"f{at}": "$a" for at in range(n)}}),
    "$fill": (one, lambda n: {"$fill": {"output": {f"f{at}": {"value": 1} for at in range(n)}}}),
    "$setWindowFields": (one, lambda n: {"$setWindowFields": {
        "sortBy": {"a": 1}, "output": {f"f{at}": {"$sum": "$a"} for at in range(n)}}}),
    "$bucket": (one, lambda n: {"$bucket": {"groupBy": "$a", "boundaries": list(range(n))}}),
    "$facet": (one, lambda n: {"$facet": {f"f{at}": [{"$match": {"a": 1}}] for at in range(n)}}),
    "$lookup let": (one, lambda n: {"$lookup": {"from": "c", "as": "r", "let": {f"v{at}": "$a" for at in range(n)},
                                                "pipeline": [{"$match": {"$expr": {"$eq": ["$a", "$$v0"]}}}]}}),
}
for name, (prepare, stage) in SPECIFIED.items():
    case(f"specification of {name}", prepare, lambda n, s=stage: aggregate(s(n)), sorts=True, max_n=50_000)
case("specification of $bucket for n documents", many,
     lambda n: aggregate({"$bucket": {"groupBy": "$a", "boundaries": list(range(-n, 0)) + [1 << 21]}}), sorts=True)
case("specification of $documents alone", one,
     lambda n: aggregate({"$documents": rows(n)}, collection=1), sorts=True)
# The stages set few fields: a document that gets a field from each stage is copied by each with all fields so far.
case("specification of n stages", one, lambda n: aggregate(*[{"$set": {f"f{at % 10}": at}} for at in range(n)]), n=50, max_n=999)
case("specification of n $match stages", one, lambda n: aggregate(*[{"$match": {f"a": {"$gt": -at}}} for at in range(n)]),
     n=50, max_n=999)
case("specification of n $unset stages", one, lambda n: aggregate(*[{"$unset": f"f{at}"} for at in range(n)]), n=50, max_n=999)

# Fields that $group, $mergeObjects and $unionWith make.
case("$group $mergeObjects of n fields at once", lambda n: wide(n) + insert([{"_id": 2, **fields(n)}]),
     lambda n: aggregate({"$group": {"_id": None, "r": {"$mergeObjects": "$$ROOT"}}}))
case("$mergeObjects of two documents of n fields", wide,
     lambda n: aggregate({"$replaceWith": {"$mergeObjects": ["$$ROOT", "$$ROOT"]}}))

# Writes of n statements.
case("insert n documents", empty, lambda n: insert(rows(n)))
case("insert n documents with indexes", indexed(empty, {"a": 1}, {"k": 1, "u": -1}), lambda n: insert(rows(n)), sorts=True)
case("insert n duplicates, unordered", many,
     lambda n: [{**command, "ordered": False} for command in insert(rows(n))])
case("insert n duplicates of a unique index, unordered", indexed(many, {"u": 1}, unique=True),
     lambda n: [{**command, "ordered": False} for command in insert([{"u": at} for at in range(n)])])
case("insert half duplicates, unordered", many, lambda n: [
    {**command, "ordered": False} for command in insert([{"_id": at + (at % 2) * n} for at in range(n)])])
case("insert duplicates within a command, unordered", empty, lambda n: [
    {**command, "ordered": False} for command in insert([{"_id": at // 2} for at in range(n)])])
case("insert n fields", empty, wide)
case("insert an array of n, multikey", indexed(empty, {"a": 1}), array, sorts=True)
case("insert an array of n documents, compound multikey", indexed(empty, {"d.x": 1, "d.y": 1}), array, sorts=True)
case("insert n fields, wildcard index", indexed(empty, {"$**": 1}), wide, sorts=True, max_n=20_000)
case("insert an array of n, hashed beside", indexed(empty, {"_id": "hashed"}), array, sorts=True)
case("insert a text of n bytes, text index", indexed(empty, {"s": "text"}), lambda n: insert([{"s": " ".join(
    f"word{mixed(at)}" for at in range(n // 10))}]), sorts=True, n=4_000, max_n=400_000)
case("insert n documents, unique index", indexed(empty, {"u": 1}, unique=True), lambda n: insert(rows(n)), sorts=True)
case("insert n documents, capped", lambda n: [{"create": "c", "capped": True, "size": 1 << 20, "max": 1000}],
     lambda n: insert(rows(n)), sorts=True)
case("insert with a validator of n fields", lambda n: [{"create": "c", "validator": {f"f{at}": 1 for at in range(n)}}],
     lambda n: wide(n), sorts=True, max_n=50_000)
case("update of n statements", many, lambda n: [{"update": "c", "updates": [
    {"q": {"_id": at}, "u": {"$inc": {"a": 1}}} for at in range(n)]}], max_n=100_000)
case("update of n statements of one document", one, lambda n: [{"update": "c", "updates": [
    {"q": {"_id": 1}, "u": {"$inc": {"a": 1}}} for at in range(n)]}], max_n=100_000)
case("update of n upserts", empty, lambda n: [{"update": "c", "updates": [
    {"q": {"_id": at}, "u": {"$inc": {"a": 1}}, "upsert": True} for at in range(n)]}], max_n=100_000)
case("update $push n times", one, lambda n: [{"update": "c", "updates": [
    {"q": {"_id": 1}, "u": {"$inc": {"b": at}}} for at in range(n)]}], max_n=100_000)
case("delete of n statements", many, lambda n: [{"delete": "c", "deletes": [
    {"q": {"_id": at}, "limit": 1} for at in range(n)]}], max_n=100_000)
case("delete of n documents", many, lambda n: [{"delete": "c", "deletes": [{"q": {"a": {"$gte": 0}}, "limit": 0}]}])
case("delete of n documents with index", indexed(many, {"a": 1}),
     lambda n: [{"delete": "c", "deletes": [{"q": {"a": {"$gte": 0}}, "limit": 0}]}], sorts=True)
case("delete first of n, n times", many, lambda n: [{"delete": "c", "deletes": [{"q": {}, "limit": 1}] * n}], max_n=100_000)
case("bulkWrite of n", empty, lambda n: [{
    "bulkWrite": 1, "$db": "admin", "ops": [{"insert": 0, "document": {"_id": at}} for at in range(n)],
    "nsInfo": [{"ns": "growth.c"}]}], max_n=100_000)
case("bulkWrite of n duplicates", many, lambda n: [{
    "bulkWrite": 1, "$db": "admin", "ops": [{"insert": 0, "document": {"_id": at}} for at in range(n)],
    "nsInfo": [{"ns": "growth.c"}], "ordered": False}], max_n=100_000)
case("bulkWrite of n collections", empty, lambda n: [{
    "bulkWrite": 1, "$db": "admin", "ops": [{"insert": at, "document": {"_id": at}} for at in range(n)],
    "nsInfo": [{"ns": f"growth.c{at}"} for at in range(n)]}], n=100, max_n=5_000)

# Other commands.
case("distinct", many, lambda n: [{"distinct": "c", "key": "a"}], sorts=True)
case("distinct of an array", array, lambda n: [{"distinct": "c", "key": "a"}], sorts=True)
case("distinct by index", indexed(many, {"a": 1}), lambda n: [{"distinct": "c", "key": "a"}], sorts=True)
case("count", many, lambda n: [{"count": "c", "query": {"k": 1}}])
case("find by getMore of 10", many, lambda n: find({}, batchSize=100))
case("find with skip", many, lambda n: find({}, skip=n - 1))
case("find sorted by index", indexed(many, {"a": 1}), lambda n: find({}, sort={"a": 1}))
case("createIndexes", many, lambda n: [{"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]}], sorts=True)
case("createIndexes unique", many, lambda n: [
    {"createIndexes": "c", "indexes": [{"key": {"u": 1}, "name": "u", "unique": True}]}], sorts=True)
case("createIndexes multikey", array, lambda n: [{"createIndexes": "c", "indexes": [{"key": {"d.x": 1}, "name": "a"}]}],
     sorts=True)
case("create n collections", empty, lambda n: [{"create": f"c{at}"} for at in range(n)], n=100, max_n=5_000)
case("create n views", empty, lambda n: [{"create": f"v{at}", "viewOn": "c", "pipeline": []} for at in range(n)],
     n=100, max_n=5_000)
case("listCollections", lambda n: [{"create": f"c{at}"} for at in range(n)], lambda n: [{"listCollections": 1}],
     n=100, max_n=5_000)
case("dropDatabase of n collections", lambda n: [{"create": f"c{at}"} for at in range(n)], lambda n: [{"dropDatabase": 1}],
     n=100, max_n=5_000)
case("drop n collections", lambda n: [{"create": f"c{at}"} for at in range(n)],
     lambda n: [{"drop": f"c{at}"} for at in range(n)], n=100, max_n=5_000)
case("create n views on views", empty, lambda n: [
    {"create": f"v{at}", "viewOn": f"v{at - 1}" if at else "c", "pipeline": [{"$match": {"a": at}}]} for at in range(n)],
    n=2, max_n=19)
case("explain of n conditions", one, lambda n: [{"explain": find({"a": {"$in": numbers(n)}})[0]}], sorts=True, max_n=50_000)
case("validate", indexed(many, {"a": 1}), lambda n: [{"validate": "c"}], sorts=True)
case("$geoNear", indexed(lambda n: insert([{"_id": at, "p": [mixed(at) % 360 - 180, mixed(at) % 179 - 89]}
                                           for at in range(n)]), {"p": "2d"}),
     lambda n: aggregate({"$geoNear": {"near": [0, 0], "distanceField": "d"}}), sorts=True, max_n=20_000)
case("names of n bytes", empty, lambda n: [{"insert": "c", "documents": [{"a" * n: 1}]}], n=20_000,
     max_n=1_000_000)

# Cases that are slow today, by the reason.
KNOWN = {
    "each iteration copies the value so far": ["expression $reduce $concatArrays in front"],
    "the array is scanned for each document": [
        "constant of n for n documents: $indexOfArray", "constant of n for n documents: $getField",
        "constant of n for n documents: $arrayElemAt"],
    "each path is searched in the document": [
        "specification of $project renamed", "specification of $group by n fields"],
    "a long text is searched in windows, whose size depends on time": ["expression $regexMatch"],
    "each document of the output has the other fields": ["stage $unwind"],
}
for reason, names in KNOWN.items():
    for each in CASES:
        if each.name in names:
            each.known = reason
