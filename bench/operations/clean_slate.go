// What a clean slate costs: Vellum's own commands on a template of 20 collections, 60 indexes beside those on
// _id, and 100,000 documents.

package main

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	templateName        = "bench_template"
	templateCollections = 20
	templateDocuments   = 100_000
)

func admin(ctx context.Context, db *mongo.Database, command bson.D) error {
	return db.Client().Database("admin").RunCommand(ctx, command).Err()
}

// template builds the database that is copied, once.
func template(ctx context.Context, db *mongo.Database) error {
	if err := admin(ctx, db, bson.D{{Key: "listSnapshots", Value: 1}}); err != nil {
		return fmt.Errorf("this server has no clean slates: %w", err)
	}
	origin := db.Client().Database(templateName)
	names, err := origin.ListCollectionNames(ctx, bson.D{})
	if err != nil || len(names) == templateCollections {
		return err
	}
	each := templateDocuments / templateCollections
	for number := range templateCollections {
		collection := origin.Collection(fmt.Sprintf("c%02d", number))
		models := []mongo.IndexModel{}
		for _, field := range []string{"group", "value", "field0"} {
			models = append(models, mongo.IndexModel{Keys: bson.D{{Key: field, Value: 1}}})
		}
		if _, err := collection.Indexes().CreateMany(ctx, models); err != nil {
			return err
		}
		for start := 0; start < each; start += 1000 {
			batch := make([]any, 0, 1000)
			for id := start; id < min(start+1000, each); id++ {
				batch = append(batch, kilobyte(id))
			}
			if _, err := collection.InsertMany(ctx, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

func fork(ctx context.Context, db *mongo.Database, worker int) error {
	return admin(ctx, db, bson.D{{Key: "forkDatabase", Value: templateName}, {Key: "to", Value: twin(worker)},
		{Key: "replace", Value: true}})
}

func twin(worker int) string {
	return fmt.Sprintf("bench_twin%d", worker)
}

// forks gives every worker a twin, and each twin a snapshot.
func forks(ctx context.Context, db *mongo.Database) error {
	if err := template(ctx, db); err != nil {
		return err
	}
	for worker := range 16 {
		if err := fork(ctx, db, worker); err != nil {
			return err
		}
		if err := admin(ctx, db, bson.D{{Key: "snapshotDatabase", Value: twin(worker)}, {Key: "name", Value: "ready"},
			{Key: "replace", Value: true}}); err != nil {
			return err
		}
	}
	return nil
}

// insertTwenty writes as a small test does: twenty documents into one collection with four indexes.
func insertTwenty(ctx context.Context, db *mongo.Database, worker int) error {
	batch := make([]any, 20)
	for i := range batch {
		batch[i] = bson.D{{Key: "group", Value: i}, {Key: "value", Value: i}, {Key: "field0", Value: "x"}}
	}
	_, err := db.Client().Database(twin(worker)).Collection("c07").InsertMany(ctx, batch)
	return err
}

func cleanSlates() []workload {
	reset := func(ctx context.Context, db *mongo.Database, worker int) error {
		return admin(ctx, db, bson.D{{Key: "resetDatabase", Value: twin(worker)}})
	}
	restore := func(ctx context.Context, db *mongo.Database, worker int) error {
		return admin(ctx, db, bson.D{{Key: "restoreDatabase", Value: twin(worker)}, {Key: "name", Value: "ready"}})
	}
	after := func(clean func(context.Context, *mongo.Database, int) error) func(context.Context, *mongo.Database, int) error {
		return func(ctx context.Context, db *mongo.Database, worker int) error {
			if err := insertTwenty(ctx, db, worker); err != nil {
				return err
			}
			return clean(ctx, db, worker)
		}
	}
	return []workload{
		{"clean slate: forkDatabase", 3_000, forks, fork},
		{"clean slate: restoreDatabase", 3_000, forks, restore},
		{"clean slate: resetDatabase", 5_000, forks, reset},
		{"clean slate: insert 20 alone", 3_000, forks, insertTwenty},
		{"clean slate: insert 20 + forkDatabase", 3_000, forks, after(fork)},
		{"clean slate: insert 20 + restoreDatabase", 3_000, forks, after(restore)},
		{"clean slate: insert 20 + resetDatabase", 3_000, forks, after(reset)},
	}
}
