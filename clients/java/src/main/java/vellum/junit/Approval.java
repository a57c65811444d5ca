package vellum.junit;

import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BiFunction;
import java.util.stream.Collectors;
import org.bson.BsonArray;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonNull;
import org.bson.BsonString;
import org.bson.BsonType;
import org.bson.BsonValue;
import org.bson.json.JsonMode;
import org.bson.json.JsonWriterSettings;

/**
 * Changes as text that is equal in every run: extended JSON with int32 as plain numbers. Fields of documents
 * are sorted by name. Indexes and options keep their order, which is significant. The packages for PyTest,
 * Node.js and Go use the same format.
 */
final class Approval {
    private static final int LINE_MAX = 100;
    private static final JsonWriterSettings CANONICAL =
            JsonWriterSettings.builder().outputMode(JsonMode.EXTENDED).build();
    private static final Map<BsonType, String> KINDS = Map.of(
            BsonType.OBJECT_ID, "ObjectId", BsonType.DATE_TIME, "Date", BsonType.TIMESTAMP, "Timestamp");
    private static final byte UUID = 4;
    /** Fields of an event that contain a test's documents. Other fields describe collections and indexes. */
    private static final Set<String> DOCUMENT_FIELDS = Set.of("documentKey", "fullDocument", "updateDescription");

    /** Text for a volatile value, from its kind and the value. */
    private interface Replacement extends BiFunction<String, BsonValue, BsonValue> {}

    private static final Replacement EXACT = (kind, value) -> value;
    private static final Replacement ANONYMOUS = (kind, value) -> new BsonString("<" + kind + ">");

    private Approval() {}

    /** Returns the text with all values. */
    static String exact(Collection<BsonDocument> changes) {
        return text(changes, EXACT);
    }

    /** Numbers ObjectIds, dates, timestamps and UUIDs in order of appearance. Equal values get equal numbers. */
    static String numbered(Collection<BsonDocument> changes) {
        Map<BsonValue, BsonValue> names = new HashMap<>();
        Map<String, Integer> counts = new HashMap<>();
        return text(changes, (kind, value) -> names.computeIfAbsent(
                value, first -> new BsonString("<" + kind + " " + counts.merge(kind, 1, Integer::sum) + ">")));
    }

    /**
     * Returns the changes in the server's order, but documents with volatile keys last, sorted by their other
     * contents.
     */
    private static String text(Collection<BsonDocument> changes, Replacement replacement) {
        Comparator<BsonDocument> order = Comparator.comparing(
                change -> change.getDocument("ns").getString("coll").getValue());
        List<BsonValue> events = changes.stream().sorted(order.thenComparing(Approval::sortKey))
                .map(change -> event(change, replacement)).toList();
        StringBuilder text = new StringBuilder();
        print(new BsonArray(events), "", text);
        return text.append('\n').toString();
    }

    private static String sortKey(BsonDocument change) {
        BsonValue key = change.get("documentKey", BsonNull.VALUE);
        boolean same = plain(key, ANONYMOUS, false).equals(plain(key, EXACT, false));
        return same ? "" : line(event(change, ANONYMOUS));
    }

    /** Returns an event without the database: its name differs in each run. */
    private static BsonValue event(BsonDocument change, Replacement replacement) {
        BsonDocument own = change.clone();
        own.getDocument("ns").remove("db");
        BsonDocument update = own.getDocument("updateDescription", new BsonDocument());
        update.getArray("removedFields", new BsonArray()).sort(Comparator.comparing(field -> field.asString().getValue()));
        own.replaceAll((name, part) -> plain(part, replacement, DOCUMENT_FIELDS.contains(name)));
        return own;
    }

    /** Returns a value with replaced volatile values. {@code byName} sorts fields of documents. */
    private static BsonValue plain(BsonValue value, Replacement replacement, boolean byName) {
        if (value instanceof BsonArray array) {
            return new BsonArray(array.stream().map(item -> plain(item, replacement, byName)).toList());
        }
        if (value instanceof BsonDocument document) {
            Map<String, BsonValue> fields = byName ? new TreeMap<>(document) : document;
            BsonDocument plain = new BsonDocument();
            fields.forEach((name, field) -> plain.append(name, plain(field, replacement, byName)));
            return plain;
        }
        if (value instanceof BsonBinary binary && binary.getType() == UUID) {
            return replacement.apply("UUID", value);
        }
        String kind = KINDS.get(value.getBsonType());
        return kind == null ? value : replacement.apply(kind, value);
    }

    private static String line(BsonValue value) {
        if (value instanceof BsonArray array) {
            return array.stream().map(Approval::line).collect(Collectors.joining(", ", "[", "]"));
        }
        if (value instanceof BsonDocument document) {
            return document.entrySet().stream().map(field -> quoted(field.getKey()) + ": " + line(field.getValue()))
                    .collect(Collectors.joining(", ", "{", "}"));
        }
        if (value.isInt32()) {
            return Integer.toString(value.asInt32().getValue());
        }
        // The driver writes only documents, so the value becomes a field.
        String json = new BsonDocument("", value).toJson(CANONICAL);
        return json.substring(json.indexOf(':') + 2, json.length() - 1);
    }

    private static String quoted(String text) {
        return line(new BsonString(text));
    }

    /** Prints a value on one line if it fits, except the list of events itself. */
    private static void print(BsonValue value, String indent, StringBuilder text) {
        String line = line(value);
        boolean splittable = value instanceof BsonArray array && !array.isEmpty()
                || value instanceof BsonDocument document && !document.isEmpty();
        if (!splittable || !indent.isEmpty() && indent.length() + line.length() <= LINE_MAX) {
            text.append(line);
            return;
        }
        String deeper = indent + "  ";
        String separator = "\n" + deeper;
        if (value instanceof BsonArray array) {
            text.append('[');
            for (BsonValue item : array) {
                text.append(separator);
                print(item, deeper, text);
                separator = ",\n" + deeper;
            }
            text.append('\n').append(indent).append(']');
            return;
        }
        text.append('{');
        for (Map.Entry<String, BsonValue> field : value.asDocument().entrySet()) {
            text.append(separator).append(quoted(field.getKey())).append(": ");
            print(field.getValue(), deeper, text);
            separator = ",\n" + deeper;
        }
        text.append('\n').append(indent).append('}');
    }
}
