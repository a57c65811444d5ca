package vellum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.springframework.data.mongodb.core.query.Criteria.where;
import static org.springframework.data.mongodb.core.query.Query.query;

import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.bson.Document;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.springframework.data.domain.Sort;
import org.springframework.data.mongodb.MongoExpression;
import org.springframework.data.mongodb.core.BulkOperations;
import org.springframework.data.mongodb.core.FindAndModifyOptions;
import org.springframework.data.mongodb.core.FindAndReplaceOptions;
import org.springframework.data.mongodb.core.aggregation.AggregationUpdate;
import org.springframework.data.mongodb.core.aggregation.ArithmeticOperators;
import org.springframework.data.mongodb.core.query.Collation;
import org.springframework.data.mongodb.core.query.Criteria;
import org.springframework.data.mongodb.core.query.Query;
import org.springframework.data.mongodb.core.query.Update;
import org.springframework.data.mongodb.core.schema.JsonSchemaProperty;
import org.springframework.data.mongodb.core.schema.MongoJsonSchema;
import vellum.Shop.Address;
import vellum.Shop.NameAndAge;
import vellum.Shop.Person;

/** MongoTemplate: criteria, updates, bulk writes, the fluent API. */
class TemplateTest extends Context {
    @BeforeEach
    void fill() {
        Person carl = new Person("Carl", 30, "Bonn", "a", "c");
        carl.active = false;
        carl.scores = Map.of("x", 7);
        template.insertAll(List.of(new Person("Dora", 41, "Bonn", "a", "b"), new Person("Anna", 17, "Berlin", "b"), carl,
                new Person("Bert", 30, null)));
    }

    private static String names(Query query) {
        return String.join("", template.find(query.with(Sort.by("name")), Person.class).stream()
                .map(person -> person.name.substring(0, 1)).toList());
    }

    static Stream<Arguments> criteria() {
        return Stream.of(
                Arguments.of("BC", where("age").is(30)), Arguments.of("AD", where("age").ne(30)),
                Arguments.of("D", where("age").gt(30)), Arguments.of("BCD", where("age").gte(30)),
                Arguments.of("A", where("age").lt(30)), Arguments.of("ABC", where("age").lte(30)),
                Arguments.of("AD", where("age").in(17, 41)), Arguments.of("BC", where("age").nin(17, 41)),
                Arguments.of("BC", where("age").mod(15, 0)), Arguments.of("D", where("tags").all("a", "b")),
                Arguments.of("A", where("tags").size(1)), Arguments.of("ACD", where("address").exists(true)),
                Arguments.of("ACD", where("address").type(3)), Arguments.of("ABC", where("age").not().gt(30)), Arguments.of("CD", where("address.city").is("Bonn")),
                Arguments.of("A", where("name").regex("^an", "i")),
                Arguments.of("C", where("name").regex(Pattern.compile("CARL", Pattern.CASE_INSENSITIVE))),
                Arguments.of("AD", new Criteria().orOperator(where("age").lt(18), where("age").gt(40))),
                Arguments.of("BC", new Criteria().norOperator(where("age").lt(18), where("age").gt(40))),
                Arguments.of("C", where("active").is(false)), Arguments.of("D", where("tags").elemMatch(
                        new Criteria().gte("a").lt("b")).and("age").gt(35)), Arguments.of("C", where("scores.x").gt(5)),
                Arguments.of("BC", where("age").bits().allSet(List.of(1, 2, 3, 4))),
                Arguments.of("D", Criteria.expr(MongoExpression.create("{$gt: ['$age', {$multiply: [20, 2]}]}"))),
                Arguments.of("CD", Criteria.matchingDocumentStructure(MongoJsonSchema.builder().properties(
                        JsonSchemaProperty.object("address").properties(
                                JsonSchemaProperty.string("city").possibleValues("Bonn"))).required("address").build())),
                Arguments.of("CD", where("address").is(new Address("Bonn", "40000"))),
                Arguments.of("B", where("address").isNull()), Arguments.of("", where("address").isNullValue()));
    }

    @ParameterizedTest
    @MethodSource("criteria")
    void criteriaFind(String wanted, Criteria criteria) {
        assertEquals(wanted, names(query(criteria)));
    }

    @Test
    void queriesSortSkipLimitAndProject() {
        Query sliced = new Query().with(Sort.by("age")).limit(1);
        sliced.fields().include("name").exclude("_id").slice("favourites", -1);
        List<Document> found = template.find(sliced, Document.class, "people");
        assertEquals(List.of(new Document("name", "Anna").append("favourites", List.of("b"))), found);
        Query named = new Query().with(Sort.by(Sort.Order.desc("age"), Sort.Order.asc("name"))).skip(1).limit(2);
        named.fields().include("name").projectAs(
                MongoExpression.create("{$toUpper: '$name'}"), "loud");
        List<Document> loud = template.find(named, Document.class, "people");
        assertEquals(List.of("BERT", "CARL"), loud.stream().map(one -> one.getString("loud")).toList());
        assertEquals(List.of(17, 30, 41), template.findDistinct(new Query(), "age", Person.class, Integer.class));
        assertEquals(2, template.count(query(where("age").is(30)), Person.class));
        assertEquals(4, template.estimatedCount(Person.class));
        assertTrue(template.exists(query(where("name").is("Dora")), Person.class));
        Query collated = query(where("name").is("anna")).collation(Collation.of("en").strength(2));
        assertEquals("Anna", template.findOne(collated, Person.class).name);
        Query hinted = query(where("name").gte("C")).withHint("name").comment("hinted").maxTimeMsec(5000).cursorBatchSize(1);
        assertEquals("CD", names(hinted));
        try (var stream = template.stream(new Query().cursorBatchSize(2), Person.class)) {
            assertEquals(4, stream.count());
        }
    }

    static Stream<Arguments> updates() {
        return Stream.of(
                Arguments.of(new Update().set("name", "x"), "name", "x"), Arguments.of(new Update().inc("age", 2), "age", 32),
                Arguments.of(new Update().multiply("age", 2), "age", 60.0), Arguments.of(new Update().min("age", 5), "age", 5),
                Arguments.of(new Update().max("age", 50), "age", 50), Arguments.of(new Update().unset("age"), "age", null),
                Arguments.of(new Update().rename("age", "years"), "years", 30),
                Arguments.of(new Update().push("tags", "z"), "favourites", List.of("a", "c", "z")),
                Arguments.of(new Update().push("tags").atPosition(0).slice(2).each("x", "y"), "favourites", List.of("x", "y")),
                Arguments.of(new Update().push("tags").sort(Sort.Direction.DESC).each("b"), "favourites", List.of("c", "b", "a")),
                Arguments.of(new Update().addToSet("tags").each("a", "d"), "favourites", List.of("a", "c", "d")),
                Arguments.of(new Update().pull("tags", "a"), "favourites", List.of("c")),
                Arguments.of(new Update().pullAll("tags", new String[] {"a", "c"}), "favourites", List.of()),
                Arguments.of(new Update().pop("tags", Update.Position.FIRST), "favourites", List.of("c")),
                Arguments.of(new Update().bitwise("age").and(6), "age", 6),
                Arguments.of(new Update().set("tags.$[one]", "q").filterArray(where("one").is("c")), "favourites", List.of("a", "q")),
                Arguments.of(new Update().setOnInsert("age", 1).set("active", true), "age", 30));
    }

    @ParameterizedTest
    @MethodSource("updates")
    void updatesChange(Update update, String field, Object wanted) {
        var result = template.updateFirst(query(where("name").is("Carl")), update, Person.class);
        assertEquals(1, result.getMatchedCount());
        Document raw = template.getCollection("people").find(new Document("name", new Document("$in", List.of("Carl", "x"))))
                .first();
        assertEquals(wanted, raw.get(field));
    }

    @Test
    void manyAreUpdatedAndUpserted() {
        assertEquals(2, template.updateMulti(query(where("age").is(30)), new Update().inc("age", 1), Person.class)
                .getModifiedCount());
        var made = template.upsert(query(where("name").is("Eve")), new Update().set("age", 1).currentDate("born"), Person.class);
        assertTrue(made.getUpsertedId().isObjectId());
        var older = AggregationUpdate.update().set("age").toValue(ArithmeticOperators.valueOf("age").add(100))
                .unset("favourites");
        assertEquals(1, template.update(Person.class).matching(where("name").is("Anna")).apply(older).first().getModifiedCount());
        assertEquals(117, template.findOne(query(where("name").is("Anna")), Person.class).age);
        template.updateFirst(new Query().with(Sort.by(Sort.Direction.DESC, "age")), new Update().set("active", false), Person.class);
    }

    @Test
    void oneIsFoundAndModifiedReplacedOrRemoved() {
        Person old = template.findAndModify(query(where("name").is("Bert")), new Update().inc("age", 1), Person.class);
        Person young = template.findAndModify(new Query().with(Sort.by("age")), new Update().inc("age", 1),
                FindAndModifyOptions.options().returnNew(true), Person.class);
        assertEquals(List.of(30, 18), List.of(old.age, young.age));
        Person made = template.findAndModify(query(where("name").is("Eve")), new Update().set("age", 3),
                FindAndModifyOptions.options().returnNew(true).upsert(true), Person.class);
        assertEquals(3, made.age);
        Person replaced = template.findAndReplace(query(where("name").is("Eve")), new Person("Eva", 4, "Ulm"),
                FindAndReplaceOptions.options().returnNew());
        assertEquals(List.of("Eva", "Ulm"), List.of(replaced.name, replaced.address.city()));
        assertEquals("Eva", template.findAndRemove(query(where("age").is(4)), Person.class).name);
        assertEquals(2, template.findAllAndRemove(query(where("address.city").is("Bonn")), Person.class).size());
        assertEquals(1, template.remove(query(where("name").is("Bert")), Person.class).getDeletedCount());
        assertNull(template.findOne(query(where("name").is("Bert")), Person.class));
    }

    @Test
    void writesGoInBulk() {
        var result = template.bulkOps(BulkOperations.BulkMode.UNORDERED, Person.class)
                .insert(List.of(new Person("E", 1, null), new Person("F", 2, null)))
                .updateMulti(query(where("age").is(30)), new Update().set("active", true))
                .upsert(query(where("name").is("G")), new Update().set("age", 9))
                .replaceOne(query(where("name").is("Anna")), new Person("Anne", 18, null))
                .remove(query(where("name").is("Dora"))).execute();
        assertEquals(List.of(2, 3, 1, 1), List.of(result.getInsertedCount(), result.getMatchedCount(),
                result.getUpserts().size(), result.getDeletedCount()));
        assertEquals("ABCEFG", names(new Query()));
    }

    @Test
    void theFluentApiDoesTheSame() {
        var found = template.query(Person.class).as(NameAndAge.class).matching(where("age").gt(20)).all();
        assertEquals(3, found.size());
        assertEquals(30, template.query(Person.class).matching(where("name").is("Bert")).oneValue().age);
        assertEquals(2, template.query(Person.class).distinct("address.city").as(String.class).all().size());
        assertEquals(1, template.remove(Person.class).matching(where("name").is("Bert")).one().getDeletedCount());
    }

    @Test
    void commandsAreRun() {
        assertEquals(1.0, template.executeCommand("{ping: 1}").get("ok"));
        assertEquals(4L, template.<Long>execute(Person.class, collection -> collection.countDocuments()).longValue());
    }
}
