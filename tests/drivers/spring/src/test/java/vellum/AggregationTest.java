package vellum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.bucket;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.count;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.facet;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.graphLookup;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.group;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.limit;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.lookup;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.match;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.merge;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.newAggregation;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.out;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.project;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.replaceRoot;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.skip;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.sort;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.sortByCount;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.unwind;
import static org.springframework.data.mongodb.core.query.Criteria.where;

import java.util.List;
import org.bson.Document;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.data.domain.Sort;
import org.springframework.data.mongodb.MongoExpression;
import org.springframework.data.mongodb.core.aggregation.AccumulatorOperators;
import org.springframework.data.mongodb.core.aggregation.Aggregation;
import org.springframework.data.mongodb.core.aggregation.AggregationOperation;
import org.springframework.data.mongodb.core.aggregation.AggregationOptions;
import org.springframework.data.mongodb.core.aggregation.ArithmeticOperators;
import org.springframework.data.mongodb.core.aggregation.ArrayOperators;
import org.springframework.data.mongodb.core.aggregation.ComparisonOperators;
import org.springframework.data.mongodb.core.aggregation.ConditionalOperators;
import org.springframework.data.mongodb.core.aggregation.ConvertOperators;
import org.springframework.data.mongodb.core.aggregation.DateOperators;
import org.springframework.data.mongodb.core.aggregation.SetOperators;
import org.springframework.data.mongodb.core.aggregation.SetWindowFieldsOperation;
import org.springframework.data.mongodb.core.aggregation.StringOperators;
import org.springframework.data.mongodb.core.aggregation.UnionWithOperation;
import org.springframework.data.mongodb.core.aggregation.UnsetOperation;
import vellum.Shop.NameAndAge;
import vellum.Shop.Person;

/** The aggregation framework: stages and expressions as Spring builds them. */
class AggregationTest extends Context {
    @BeforeEach
    void fill() {
        Person carl = new Person("Carl", 30, "Bonn", "a", "c");
        carl.active = false;
        template.insertAll(List.of(new Person("Dora", 41, "Bonn", "a", "b"), new Person("Anna", 17, "Berlin", "b"), carl,
                new Person("Bert", 30, null)));
    }

    private static List<Document> run(AggregationOperation... stages) {
        return template.aggregate(newAggregation(Person.class, stages), Document.class).getMappedResults();
    }

    private static <T> List<T> column(List<Document> found, String field, Class<T> type) {
        return found.stream().map(one -> one.get(field, type)).toList();
    }

    @Test
    void documentsAreGroupedAndSorted() {
        var found = run(match(where("active").is(true)), unwind("tags"),
                group("tags").count().as("n").sum("age").as("sum").push("name").as("names").max("age").as("oldest"),
                sort(Sort.Direction.ASC, "_id"));
        assertEquals(List.of("a", "b"), column(found, "_id", String.class));
        assertEquals(List.of(41, 58), column(found, "sum", Integer.class));
        assertEquals(List.of(List.of("Dora"), List.of("Dora", "Anna")), found.stream().map(one -> one.get("names")).toList());
        var two = run(group("active", "age").avg("age").as("mean").addToSet("name").as("names").stdDevPop("age").as("spread"),
                sort(Sort.by("age", "active")), skip(1L), limit(2));
        assertEquals(2, two.size());
        assertEquals(List.of(30.0, 30.0), column(two, "mean", Double.class));
    }

    @Test
    void resultsAreMapped() {
        var mapped = template.aggregate(newAggregation(Person.class, group("address.city").sum("age").as("age"),
                project("age").and("_id").as("name").andExclude("_id"), match(where("age").gt(30)))
                .withOptions(AggregationOptions.builder().allowDiskUse(true).cursorBatchSize(1).comment("ages").build()),
                NameAndAge.class);
        assertEquals(List.of(new NameAndAge("Bonn", 71)), mapped.getMappedResults());
        try (var stream = template.aggregateStream(newAggregation(Person.class, sort(Sort.by("age"))), Person.class)) {
            assertEquals(List.of(17, 30, 30, 41), stream.map(person -> person.age).toList());
        }
    }

    @Test
    void expressionsCompute() {
        var found = run(match(where("name").is("Dora")), project()
                .and(ArithmeticOperators.valueOf("age").multiplyBy(2)).as("double")
                .andExpression("(age - 1) / 4").as("quarter")
                .and(StringOperators.valueOf("name").toUpper()).as("loud")
                .and(StringOperators.valueOf("name").substring(1, 2)).as("part")
                .and(StringOperators.valueOf("name").regexFind("o.")).as("found")
                .and(ArrayOperators.arrayOf("tags").length()).as("tags")
                .and(ArrayOperators.arrayOf("tags").filter().as("t").by(ComparisonOperators.valueOf("$$t")
                        .greaterThanValue("a"))).as("late")
                .and(ArrayOperators.arrayOf("tags").elementAt(0)).as("first")
                .and(ArrayOperators.arrayOf("tags").reverse()).as("back")
                .and(ConditionalOperators.when(where("age").gte(18)).then("adult").otherwise("child")).as("kind")
                .and(ConditionalOperators.ifNull("missing").then("none")).as("none")
                .and(ConditionalOperators.switchCases(ConditionalOperators.Switch.CaseOperator
                        .when(ComparisonOperators.valueOf("age").greaterThanValue(40)).then("old")).defaultTo("young")).as("switched")
                .and(DateOperators.dateOf("born").year()).as("year")
                .and(DateOperators.dateOf("born").toString("%Y-%m")).as("month")
                .and(DateOperators.dateOf("born").add(2, "day")).as("later")
                .and(SetOperators.arrayAsSet("tags").union("tags")).as("union")
                .and(ConvertOperators.valueOf("age").convertToString()).as("text")
                .and(AccumulatorOperators.valueOf("age").max()).as("max")).get(0);
        assertEquals(List.of(82, 10.0, "DORA", "or", 2, "a", "adult", "none", "old", "41", 41), List.of(found.get("double"),
                found.get("quarter"), found.get("loud"), found.get("part"), found.get("tags"), found.get("first"),
                found.get("kind"), found.get("none"), found.get("switched"), found.get("text"), found.get("max")));
        assertEquals("or", found.get("found", Document.class).getString("match"));
        assertEquals(List.of(List.of("b"), List.of("b", "a")), List.of(found.get("late"), found.get("back")));
        assertEquals(1983, found.get("year"));
        assertEquals("1983-02", found.get("month"));
        assertEquals(2, found.getList("union", String.class).size());
    }

    @Test
    void otherCollectionsAreLookedUp() {
        template.getCollection("cities").insertMany(List.of(
                new Document("_id", "Bonn").append("country", "NRW"), new Document("_id", "NRW").append("country", "DE")));
        var joined = run(lookup("cities", "address.city", "_id", "city"), match(where("city").ne(List.of())),
                sort(Sort.by("name")), project("name").and("city.country").as("country"));
        assertEquals(List.of(List.of("NRW"), List.of("NRW")), joined.stream().map(one -> one.get("country")).toList());
        var deep = run(match(where("name").is("Carl")), graphLookup("cities").startWith("$address.city")
                .connectFrom("country").connectTo("_id").depthField("depth").as("chain"));
        assertEquals(2, deep.get(0).getList("chain", Document.class).size());
        var let = run(lookup().from("cities").let(org.springframework.data.mongodb.core.aggregation.VariableOperators.Let
                .ExpressionVariable.newVariable("city").forField("address.city"))
                .pipeline(match(org.springframework.data.mongodb.core.query.Criteria.expr(
                        MongoExpression.create("{$eq: ['$_id', '$$city']}"))), project("country").andExclude("_id")).as("city"),
                match(where("name").is("Dora")));
        assertEquals(List.of(new Document("country", "NRW")), let.get(0).get("city"));
        assertEquals(6, run(UnionWithOperation.unionWith("cities")).size());
    }

    @Test
    void facetsAndBuckets() {
        var found = run(facet(match(where("age").gt(20)), count().as("n")).as("adults")
                .and(sortByCount("age")).as("ages")
                .and(bucket("age").withBoundaries(0, 18, 40).withDefaultBucket("rest").andOutputCount().as("n")
                        .andOutput("name").push().as("names")).as("buckets")
                .and(Aggregation.bucketAuto("age", 2)).as("halves")).get(0);
        assertEquals(3, found.getList("adults", Document.class).get(0).get("n"));
        assertEquals(30, found.getList("ages", Document.class).get(0).get("_id"));
        assertEquals(List.of(1, 2, 1), column(found.getList("buckets", Document.class), "n", Integer.class));
        assertEquals(2, found.getList("halves", Document.class).size());
    }

    @Test
    void windowsAreComputed() {
        var found = run(SetWindowFieldsOperation.builder().partitionByField("address.city").sortBy(Sort.by("age"))
                .output(AccumulatorOperators.Sum.sumOf("age")).within(
                        SetWindowFieldsOperation.Windows.documents().fromUnbounded().toCurrent().build()).as("running").build(),
                sort(Sort.by("name")));
        assertEquals(List.of(17, 30, 30, 71), column(found, "running", Integer.class));
    }

    @Test
    void rootsAreReplacedAndFieldsChanged() {
        var found = run(match(where("address").exists(true)), replaceRoot("address"), sort(Sort.by("city")),
                Aggregation.addFields().addField("kind").withValue("city").build(), UnsetOperation.unset("zip"));
        assertEquals(new Document("city", "Berlin").append("kind", "city"), found.get(0));
        assertEquals(2, run(Aggregation.sample(2)).size());
    }

    @Test
    void resultsAreWritten() {
        run(group("address.city").count().as("n"), out("counted"));
        assertEquals(3, template.getCollection("counted").countDocuments());
        run(match(where("age").gt(20)), group("address.city").sum("age").as("n"), merge().intoCollection("counted").on("_id")
                .whenMatched(org.springframework.data.mongodb.core.aggregation.MergeOperation.WhenDocumentsMatch.replaceDocument())
                .whenNotMatched(org.springframework.data.mongodb.core.aggregation.MergeOperation.WhenDocumentsDontMatch.discardDocument())
                .build());
        assertEquals(71, template.getCollection("counted").find(new Document("_id", "Bonn")).first().get("n"));
        assertEquals(1, template.getCollection("counted").find(new Document("_id", "Berlin")).first().get("n"));
    }
}
