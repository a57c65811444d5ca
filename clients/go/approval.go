package vellumtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Changes as text that is equal in every run: extended JSON with int32 as plain numbers. Fields of documents
// are sorted by name, because maps have no order. Indexes and options keep their order, which is significant.
// ObjectIDs, dates, timestamps and UUIDs are numbered in order of appearance, so that references can be
// followed. The packages for PyTest, Node.js and JUnit use the same format.

const lineMax = 100

// replaceFunc returns the text for a volatile value, by its kind.
type replaceFunc func(kind string, value any) any

func anonymous(kind string, _ any) any { return "<" + kind + ">" }

func exact(_ string, value any) any { return value }

// text returns the changes in the server's order, but documents with volatile keys last, sorted by their
// other contents.
func text(changes []bson.D) string {
	type sortedChange struct {
		change              bson.D
		collection, sortKey string
	}
	var sorted []sortedChange
	for _, change := range changes {
		next := sortedChange{change: change, collection: get(get(change, "ns"), "coll").(string)}
		key := get(change, "documentKey")
		if line(plain(key, anonymous, false)) != line(plain(key, exact, false)) {
			next.sortKey = line(event(change, anonymous))
		}
		sorted = append(sorted, next)
	}
	slices.SortStableFunc(sorted, func(a, b sortedChange) int {
		return cmp.Or(cmp.Compare(a.collection, b.collection), cmp.Compare(a.sortKey, b.sortKey))
	})
	replace := numbered()
	events := bson.A{}
	for _, next := range sorted {
		events = append(events, event(next.change, replace))
	}
	return layout(events, "") + "\n"
}

func numbered() replaceFunc {
	names, counts := map[string]string{}, map[string]int{}
	return func(kind string, value any) any {
		key := fmt.Sprint(kind, value)
		if names[key] == "" {
			counts[kind]++
			names[key] = fmt.Sprintf("<%s %d>", kind, counts[kind])
		}
		return names[key]
	}
}

func get(document any, name string) any {
	fields, _ := document.(bson.D)
	for _, field := range fields {
		if field.Key == name {
			return field.Value
		}
	}
	return nil
}

// event returns an event without the database: its name differs in each run.
func event(change bson.D, replace replaceFunc) bson.D {
	own := bson.D{}
	for _, part := range change {
		value := part.Value
		byName := false
		switch part.Key {
		case "ns":
			value = bson.D{{Key: "coll", Value: get(value, "coll")}}
		case "updateDescription":
			byName = true
			removed, _ := get(value, "removedFields").(bson.A)
			slices.SortFunc(removed, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		case "documentKey", "fullDocument":
			byName = true
		}
		own = append(own, bson.E{Key: part.Key, Value: plain(value, replace, byName)})
	}
	return own
}

// plain returns a document with replaced volatile values. Fields of a test's documents are sorted by name.
func plain(value any, replace replaceFunc, byName bool) any {
	switch value := value.(type) {
	case bson.D:
		if byName {
			// Sorted before values are numbered: a map's fields have a random order.
			value = slices.Clone(value)
			slices.SortStableFunc(value, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
		}
		fields := bson.D{}
		for _, field := range value {
			fields = append(fields, bson.E{Key: field.Key, Value: plain(field.Value, replace, byName)})
		}
		return fields
	case bson.A:
		items := bson.A{}
		for _, item := range value {
			items = append(items, plain(item, replace, byName))
		}
		return items
	case bson.ObjectID:
		return replace("ObjectId", value)
	case bson.DateTime:
		return replace("Date", value)
	case bson.Timestamp:
		return replace("Timestamp", value)
	case bson.Binary:
		if value.Subtype == bson.TypeBinaryUUID {
			return replace("UUID", value)
		}
	}
	return value
}

func line(value any) string {
	var parts []string
	switch value := value.(type) {
	case bson.D:
		for _, field := range value {
			parts = append(parts, line(field.Key)+": "+line(field.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case bson.A:
		for _, item := range value {
			parts = append(parts, line(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			parts = append(parts, line(name)+": "+line(value[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case int32, json.Number:
		return fmt.Sprint(value)
	case string, bool, nil:
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		// Encoding cannot fail here.
		_ = encoder.Encode(value)
		return strings.TrimSuffix(text.String(), "\n")
	}
	// The driver encodes only documents as extended JSON. The text is parsed again, for the same white space as in
	// the other packages.
	encoded, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: value}}, true, false)
	if err != nil {
		return fmt.Sprintf("%q", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var decoded map[string]any
	if err := decoder.Decode(&decoded); err != nil {
		return fmt.Sprintf("%q", err)
	}
	return line(decoded["v"])
}

// layout prints a value on one line if it fits, except the list of events itself.
func layout(value any, indent string) string {
	short := line(value)
	if indent != "" && len(indent)+len(short) <= lineMax {
		return short
	}
	deeper := indent + "  "
	var parts []string
	ends := "[]"
	switch value := value.(type) {
	case bson.D:
		ends = "{}"
		for _, field := range value {
			parts = append(parts, deeper+line(field.Key)+": "+layout(field.Value, deeper))
		}
	case bson.A:
		for _, item := range value {
			parts = append(parts, deeper+layout(item, deeper))
		}
	}
	if parts == nil {
		return short
	}
	return ends[:1] + "\n" + strings.Join(parts, ",\n") + "\n" + indent + ends[1:]
}
