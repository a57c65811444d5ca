package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// driver is a server that speaks MongoDB's protocol.
type driver struct {
	uri    string
	client *mongo.Client
	db     *mongo.Database
	next   atomic.Int64
}

func document(id int64) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "g", Value: id % groups}, {Key: "n", Value: id}, {Key: "text", Value: filler()}}
}

func (d *driver) prepare(ctx context.Context, workers int) error {
	client, err := mongo.Connect(options.Client().ApplyURI(d.uri).SetMaxPoolSize(uint64(workers)).SetMinPoolSize(uint64(workers)))
	if err != nil {
		return err
	}
	d.client, d.db = client, client.Database("bench")
	if err := d.db.Drop(ctx); err != nil {
		return err
	}
	d.next.Store(documents)
	for _, name := range []string{"points", "plain", "indexed", "many"} {
		// The insert creates the collection, also on FerretDB.
		if _, err := d.db.Collection(name).InsertOne(ctx, document(-1)); err != nil {
			return err
		}
	}
	for name, keys := range map[string][]string{"points": {"g"}, "indexed": {"g", "n"}} {
		for _, key := range keys {
			index := mongo.IndexModel{Keys: bson.D{{Key: key, Value: 1}}}
			if _, err := d.db.Collection(name).Indexes().CreateOne(ctx, index); err != nil {
				return err
			}
		}
	}
	for start := int64(0); start < documents; start += batch {
		if err := d.insertMany(ctx, "points", start); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) insertMany(ctx context.Context, name string, start int64) error {
	all := make([]any, batch)
	for at := range all {
		all[at] = document(start + int64(at))
	}
	_, err := d.db.Collection(name).InsertMany(ctx, all)
	return err
}

func (d *driver) insertOne(name string) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		_, err := d.db.Collection(name).InsertOne(ctx, document(d.next.Add(1)))
		return err
	}
}

func (d *driver) operations() []operation {
	return []operation{
		{"findOne by _id", 1, 1000, func(ctx context.Context, _ int) error {
			return d.db.Collection("points").FindOne(ctx, bson.D{{Key: "_id", Value: rand.Int64N(documents)}}).Err()
		}},
		{"insertOne", 1, 1000, d.insertOne("plain")},
		{"insertOne, two more indexes", 1, 1000, d.insertOne("indexed")},
		{"insertMany of 1,000, for each", batch, 10, func(ctx context.Context, _ int) error {
			return d.insertMany(ctx, "many", d.next.Add(batch)-batch)
		}},
		{"updateOne by _id", 1, 1000, func(ctx context.Context, _ int) error {
			changed, err := d.db.Collection("points").UpdateOne(ctx, bson.D{{Key: "_id", Value: rand.Int64N(documents)}},
				bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
			if err == nil && changed.ModifiedCount != 1 {
				return fmt.Errorf("%d documents changed", changed.ModifiedCount)
			}
			return err
		}},
		{"find of 100 by an index", 1, 250, func(ctx context.Context, _ int) error {
			cursor, err := d.db.Collection("points").Find(ctx, bson.D{{Key: "g", Value: rand.Int64N(groups)}},
				options.Find().SetLimit(100))
			if err != nil {
				return err
			}
			var found []bson.Raw
			if err := cursor.All(ctx, &found); err == nil && len(found) != 100 {
				return fmt.Errorf("%d documents found", len(found))
			}
			return err
		}},
		{"updateMany of 100, for each", documents / groups, 50, func(ctx context.Context, _ int) error {
			changed, err := d.db.Collection("points").UpdateMany(ctx, bson.D{{Key: "g", Value: rand.Int64N(groups)}},
				bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
			if err == nil && changed.ModifiedCount != documents/groups {
				return fmt.Errorf("%d documents changed", changed.ModifiedCount)
			}
			return err
		}},
		{"$match and $group, for each", documents, 15, func(ctx context.Context, _ int) error {
			return d.aggregate(ctx, bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: 0}}}},
				bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$g"}, {Key: "sum", Value: bson.D{{Key: "$sum", Value: "$n"}}}}}})
		}},
		{"scan, nothing matches, for each", documents, 15, func(ctx context.Context, _ int) error {
			return d.aggregate(ctx, bson.D{{Key: "text", Value: "none"}})
		}},
		{"insert of 20, delete of all", 1, 100, func(ctx context.Context, worker int) error {
			collection, all := d.db.Collection(fmt.Sprint("emptied", worker)), make([]any, 20)
			for at := range all {
				all[at] = document(int64(at))
			}
			if _, err := collection.InsertMany(ctx, all); err != nil {
				return err
			}
			_, err := collection.DeleteMany(ctx, bson.D{})
			return err
		}},
		{"drop and recreation, 4 indexes", 1, 100, func(ctx context.Context, worker int) error {
			collection := d.db.Collection(fmt.Sprint("dropped", worker))
			if err := collection.Drop(ctx); err != nil {
				return err
			}
			var indexes []mongo.IndexModel
			for _, key := range []string{"a", "b", "c"} {
				indexes = append(indexes, mongo.IndexModel{Keys: bson.D{{Key: key, Value: 1}}})
			}
			_, err := collection.Indexes().CreateMany(ctx, indexes)
			return err
		}},
	}
}

// aggregate runs a $match and further stages over all documents.
func (d *driver) aggregate(ctx context.Context, match bson.D, stages ...bson.D) error {
	pipeline := append(mongo.Pipeline{{{Key: "$match", Value: match}}}, stages...)
	cursor, err := d.db.Collection("points").Aggregate(ctx, pipeline)
	if err != nil {
		return err
	}
	return cursor.All(ctx, &[]bson.Raw{})
}

// newCollection returns an operation that creates a collection with two indexes.
func (d *driver) newCollection() operation {
	return operation{"a collection with two indexes", 1, 1000, func(ctx context.Context, _ int) error {
		collection := d.db.Collection(fmt.Sprintf("made%d", d.next.Add(1)))
		_, err := collection.Indexes().CreateMany(ctx, []mongo.IndexModel{
			{Keys: bson.D{{Key: "g", Value: 1}}}, {Keys: bson.D{{Key: "n", Value: 1}}},
		})
		return err
	}}
}

func (d *driver) close(ctx context.Context) {
	d.client.Disconnect(ctx)
}
