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

// Changes as text that doesn't vary from run to run: extended JSON (int32 as plain numbers), in which fields of documents
// go by their names, as maps have none other; what indexes and options are made of keeps its order, which matters there.
// ObjectIDs, dates, timestamps and UUIDs are numbered as they appear, so that references can still be followed. The
// packages for PyTest, Node.js and JUnit write theirs alike.

const lineMax = 100

// show tells what is written for a volatile value, by its kind.
type show func(kind string, value any) any

func anonymous(kind string, _ any) any { return "<" + kind + ">" }

func exact(_ string, value any) any { return value }

// text has the changes as the server has them, but documents with volatile keys last, and by all else.
func text(changes []bson.D) string {
	type placed struct {
		change            bson.D
		collection, place string
	}
	var sorted []placed
	for _, change := range changes {
		next := placed{change: change, collection: get(get(change, "ns"), "coll").(string)}
		key := get(change, "documentKey")
		if line(plain(key, anonymous, false)) != line(plain(key, exact, false)) {
			next.place = line(event(change, anonymous))
		}
		sorted = append(sorted, next)
	}
	slices.SortStableFunc(sorted, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.collection, b.collection), cmp.Compare(a.place, b.place))
	})
	shown := numbered()
	events := bson.A{}
	for _, next := range sorted {
		events = append(events, event(next.change, shown))
	}
	return layout(events, "") + "\n"
}

func numbered() show {
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

// event leaves out the database, whose name differs from run to run.
func event(change bson.D, shown show) bson.D {
	own := bson.D{}
	for _, part := range change {
		value := part.Value
		ofDocuments := false
		switch part.Key {
		case "ns":
			value = bson.D{{Key: "coll", Value: get(value, "coll")}}
		case "updateDescription":
			ofDocuments = true
			removed, _ := get(value, "removedFields").(bson.A)
			slices.SortFunc(removed, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		case "documentKey", "fullDocument":
			ofDocuments = true
		}
		own = append(own, bson.E{Key: part.Key, Value: plain(value, shown, ofDocuments)})
	}
	return own
}

// plain has volatile values as they are shown, and fields by their names where these are a test's documents.
func plain(value any, shown show, byName bool) any {
	switch value := value.(type) {
	case bson.D:
		if byName {
			// Before anything is numbered: a map's fields come in another order each time.
			value = slices.Clone(value)
			slices.SortStableFunc(value, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
		}
		fields := bson.D{}
		for _, field := range value {
			fields = append(fields, bson.E{Key: field.Key, Value: plain(field.Value, shown, byName)})
		}
		return fields
	case bson.A:
		items := bson.A{}
		for _, item := range value {
			items = append(items, plain(item, shown, byName))
		}
		return items
	case bson.ObjectID:
		return shown("ObjectId", value)
	case bson.DateTime:
		return shown("Date", value)
	case bson.Timestamp:
		return shown("Timestamp", value)
	case bson.Binary:
		if value.Subtype == bson.TypeBinaryUUID {
			return shown("UUID", value)
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
		// Nothing fails to be encoded here.
		_ = encoder.Encode(value)
		return strings.TrimSuffix(text.String(), "\n")
	}
	// Only documents are written as extended JSON, which is read again for blanks where the others have them.
	whole, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: value}}, true, false)
	if err != nil {
		return fmt.Sprintf("%q", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(whole))
	decoder.UseNumber()
	var read map[string]any
	if err := decoder.Decode(&read); err != nil {
		return fmt.Sprintf("%q", err)
	}
	return line(read["v"])
}

// layout has in one line what fits, except for the list of events itself.
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
