// What is asked of servers, each by its name.

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// indexNotFound is MongoDB's code.
const indexNotFound = 27

type workload struct {
	name       string
	operations int
	prepare    func(context.Context, *mongo.Database) error
	run        func(context.Context, *mongo.Database, int) error
}

func document(id int) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 0}, {Key: "text", Value: strings.Repeat("x", 460)}}
}

func fill(ctx context.Context, db *mongo.Database, name string, count int) error {
	if err := db.Collection(name).Drop(ctx); err != nil {
		return err
	}
	for start := 0; start < count; start += 1000 {
		batch := make([]any, 0, 1000)
		for id := start; id < min(start+1000, count); id++ {
			batch = append(batch, document(id))
		}
		if _, err := db.Collection(name).InsertMany(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func fourIndexes() []mongo.IndexModel {
	models := []mongo.IndexModel{}
	for _, field := range []string{"a", "b", "c", "d"} {
		models = append(models, mongo.IndexModel{Keys: bson.D{{Key: field, Value: 1}}})
	}
	return models
}

func kilobyte(id int) bson.D {
	fields := bson.D{{Key: "_id", Value: id}, {Key: "group", Value: id % 100}, {Key: "value", Value: float64(id)}}
	for i := 0; i < 12; i++ {
		fields = append(fields, bson.E{Key: fmt.Sprintf("field%d", i), Value: strings.Repeat("y", 64)})
	}
	return fields
}

func big(ctx context.Context, db *mongo.Database) error {
	count, err := db.Collection("big").EstimatedDocumentCount(ctx)
	if err != nil {
		return err
	}
	if count == 100_000 {
		err := db.Collection("big").Indexes().DropAll(ctx)
		// Where there are none, not every server is content.
		var refused mongo.CommandError
		if errors.As(err, &refused) && refused.Code == indexNotFound {
			return nil
		}
		return err
	}
	for start := 0; start < 100_000; start += 1000 {
		batch := make([]any, 0, 1000)
		for id := start; id < start+1000; id++ {
			batch = append(batch, kilobyte(id))
		}
		if _, err := db.Collection("big").InsertMany(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func drain(ctx context.Context, cursor *mongo.Cursor, err error) error {
	if err != nil {
		return err
	}
	for cursor.Next(ctx) {
	}
	return cursor.Err()
}

// settled has a server write down what it has, so that reads find it where it stays; what can't do so needn't.
func settled(prepare func(context.Context, *mongo.Database) error) func(context.Context, *mongo.Database) error {
	return func(ctx context.Context, db *mongo.Database) error {
		if err := prepare(ctx, db); err != nil {
			return err
		}
		_ = admin(ctx, db, bson.D{{Key: "fsync", Value: 1}})
		return nil
	}
}

func workloads() []workload {
	nothing := func(context.Context, *mongo.Database) error { return nil }
	return []workload{
		{"ping", 20_000, nothing, func(ctx context.Context, db *mongo.Database, _ int) error {
			return db.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
		}},
		{"insert one 500-byte document", 20_000, func(ctx context.Context, db *mongo.Database) error {
			return db.Collection("inserts").Drop(ctx)
		}, func(ctx context.Context, db *mongo.Database, _ int) error {
			_, err := db.Collection("inserts").InsertOne(ctx, bson.D{{Key: "text", Value: strings.Repeat("x", 460)}})
			return err
		}},
		{"insertMany of 1,000 (per document)", 100_000, func(ctx context.Context, db *mongo.Database) error {
			return db.Collection("many").Drop(ctx)
		}, nil},
		{"findOne by _id", 20_000, func(ctx context.Context, db *mongo.Database) error {
			return fill(ctx, db, "points", 10_000)
		}, func(ctx context.Context, db *mongo.Database, _ int) error {
			return db.Collection("points").FindOne(ctx, bson.D{{Key: "_id", Value: rand.IntN(10_000)}}).Err()
		}},
		{"update $inc by _id", 20_000, func(ctx context.Context, db *mongo.Database) error {
			return fill(ctx, db, "points", 10_000)
		}, func(ctx context.Context, db *mongo.Database, _ int) error {
			_, err := db.Collection("points").UpdateOne(ctx, bson.D{{Key: "_id", Value: rand.IntN(10_000)}},
				bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
			return err
		}},
		{"update $inc of one document", 20_000, func(ctx context.Context, db *mongo.Database) error {
			return fill(ctx, db, "points", 1)
		}, func(ctx context.Context, db *mongo.Database, _ int) error {
			_, err := db.Collection("points").UpdateOne(ctx, bson.D{{Key: "_id", Value: 0}},
				bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
			return err
		}},
		{"transaction of two updates", 5_000, twoPerWorker, twoUpdates},
		{"delete_many, empty collection", 20_000, func(ctx context.Context, db *mongo.Database) error {
			_, err := db.Collection("empty").DeleteMany(ctx, bson.D{})
			return err
		}, func(ctx context.Context, db *mongo.Database, _ int) error {
			_, err := db.Collection("empty").DeleteMany(ctx, bson.D{})
			return err
		}},
		{"insert 20 + delete_many", 5_000, nothing, func(ctx context.Context, db *mongo.Database, worker int) error {
			batch := make([]any, 20)
			for i := range batch {
				batch[i] = bson.D{{Key: "text", Value: "x"}, {Key: "n", Value: i}}
			}
			c := db.Collection(fmt.Sprintf("clean%d", worker))
			if _, err := c.InsertMany(ctx, batch); err != nil {
				return err
			}
			_, err := c.DeleteMany(ctx, bson.D{})
			return err
		}},
		{"drop + recreate with 4 indexes", 5_000, nothing, func(ctx context.Context, db *mongo.Database, worker int) error {
			c := db.Collection(fmt.Sprintf("drop%d", worker))
			if err := c.Drop(ctx); err != nil {
				return err
			}
			_, err := c.Indexes().CreateMany(ctx, fourIndexes())
			return err
		}},
		{"scan 100,000 × 1 KB, no match (per document)", 20, settled(big), func(ctx context.Context, db *mongo.Database, _ int) error {
			cursor, err := db.Collection("big").Find(ctx, bson.D{{Key: "value", Value: -1}})
			return drain(ctx, cursor, err)
		}},
		{"$match + $group (per document)", 20, settled(big), func(ctx context.Context, db *mongo.Database, _ int) error {
			cursor, err := db.Collection("big").Aggregate(ctx, bson.A{
				bson.D{{Key: "$match", Value: bson.D{{Key: "value", Value: bson.D{{Key: "$gte", Value: 0}}}}}},
				bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$group"},
					{Key: "sum", Value: bson.D{{Key: "$sum", Value: "$value"}}}}}}})
			return drain(ctx, cursor, err)
		}},
		{"sort + limit 10 without index (per document)", 20, big, func(ctx context.Context, db *mongo.Database, _ int) error {
			cursor, err := db.Collection("big").Find(ctx, bson.D{},
				options.Find().SetSort(bson.D{{Key: "value", Value: -1}}).SetLimit(10))
			return drain(ctx, cursor, err)
		}},
		{"$lookup by an indexed field of 1,000 (per document)", 20, func(ctx context.Context, db *mongo.Database) error {
			if err := fill(ctx, db, "foreign", 1000); err != nil {
				return err
			}
			return big(ctx, db)
		}, func(ctx context.Context, db *mongo.Database, _ int) error {
			cursor, err := db.Collection("big").Aggregate(ctx, bson.A{
				bson.D{{Key: "$lookup", Value: bson.D{{Key: "from", Value: "foreign"}, {Key: "localField", Value: "group"},
					{Key: "foreignField", Value: "_id"}, {Key: "as", Value: "found"}}}},
				bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil},
					{Key: "n", Value: bson.D{{Key: "$sum", Value: bson.D{{Key: "$size", Value: "$found"}}}}}}}}})
			return drain(ctx, cursor, err)
		}},
		{"$unwind of 2 + $group (per document)", 20, big, func(ctx context.Context, db *mongo.Database, _ int) error {
			cursor, err := db.Collection("big").Aggregate(ctx, bson.A{
				bson.D{{Key: "$project", Value: bson.D{{Key: "v", Value: bson.A{"$group", "$value"}}}}},
				bson.D{{Key: "$unwind", Value: "$v"}},
				bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: "$v"}}}}}}})
			return drain(ctx, cursor, err)
		}},
		{"createIndex on 100,000 (per document)", 10, big, func(ctx context.Context, db *mongo.Database, _ int) error {
			if err := db.Collection("big").Indexes().DropAll(ctx); err != nil {
				return err
			}
			_, err := db.Collection("big").Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "value", Value: 1}}})
			return err
		}},
	}
}

// twoPerWorker fills a collection with documents of which each worker changes two of its own.
func twoPerWorker(ctx context.Context, db *mongo.Database) error {
	return fill(ctx, db, "points", 1000)
}

// twoUpdates changes two documents in one transaction, which a replica set allows and a standalone doesn't.
func twoUpdates(ctx context.Context, db *mongo.Database, worker int) error {
	session, err := db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		for at := range 2 {
			_, err := db.Collection("points").UpdateOne(ctx, bson.D{{Key: "_id", Value: 2*worker + at}},
				bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return err
}

// insertMany is the one workload whose operations are documents of a batch.
func insertMany(ctx context.Context, db *mongo.Database, _ int) error {
	batch := make([]any, 1000)
	for i := range batch {
		batch[i] = bson.D{{Key: "n", Value: i}, {Key: "text", Value: strings.Repeat("x", 460)}}
	}
	_, err := db.Collection("many").InsertMany(ctx, batch)
	return err
}
