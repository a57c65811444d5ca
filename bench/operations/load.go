// A load of far more than the cache holds, what is written behind it included.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Some 330 MB: ten times a cache of 32 MiB.
const loadedDocuments = 680_000

// letters is text that hardly gets shorter by compression, of which documents have a piece each.
func letters() string {
	text := make([]byte, 1<<20)
	for at := range text {
		text[at] = byte('!' + rand.IntN(90))
	}
	return string(text)
}

// load inserts in batches of a thousand, and has the server write all of it to where it stays.
func load(db *mongo.Database, used func() float64) work {
	collection, text := db.Collection("load"), letters()
	return work{
		name:    "load of ten caches, then a checkpoint",
		prepare: func(ctx context.Context) error { return collection.Drop(ctx) },
		run: func(ctx context.Context, _ int) error {
			batch := make([]any, 1000)
			for at := range batch {
				from := rand.IntN(len(text) - 440)
				batch[at] = bson.D{{Key: "n", Value: at}, {Key: "text", Value: text[from : from+440]}}
			}
			_, err := collection.InsertMany(ctx, batch)
			return err
		},
		finish: func(ctx context.Context) error {
			if err := admin(ctx, db, bson.D{{Key: "fsync", Value: 1}}); err != nil {
				return fmt.Errorf("the checkpoint: %w", err)
			}
			return nil
		},
		calls:   loadedDocuments / 1000,
		perCall: 1000,
		used:    used,
		cold:    true,
	}
}
