// Measures how long single inserts into one database take while another client does long work in a second:
// builds an index over 300,000 documents, runs an update pipeline over 3,000,000 array elements, deletes
// many documents, keeps a transaction open.
//
//	go run . -uri mongodb://127.0.0.1:27017/ [-documents 300000] [-transactions]
//
// The figures are the client's, so compare servers in runs side by side on one machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

type work struct {
	name string
	run  func(context.Context, *mongo.Database) error
}

// fill puts documents into a collection, as many in each batch as a message takes well.
func fill(ctx context.Context, c *mongo.Collection, count int) error {
	if err := c.Drop(ctx); err != nil {
		return err
	}
	for start := 0; start < count; start += 10_000 {
		batch := make([]any, 0, 10_000)
		for id := start; id < min(start+10_000, count); id++ {
			batch = append(batch, bson.D{{Key: "_id", Value: id}, {Key: "n", Value: id * 7919 % count}})
		}
		if _, err := c.InsertMany(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func createIndex(ctx context.Context, db *mongo.Database) error {
	_, err := db.Collection("big").Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "n", Value: 1}}})
	return err
}

// heavyUpdate computes over 3,000,000 elements of one document.
func heavyUpdate(ctx context.Context, db *mongo.Database) error {
	c := db.Collection("heavy")
	if _, err := c.UpdateByID(ctx, 1, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 0}}}},
		options.UpdateOne().SetUpsert(true)); err != nil {
		return err
	}
	elements := bson.D{{Key: "$map", Value: bson.D{
		{Key: "input", Value: bson.D{{Key: "$range", Value: bson.A{0, 3_000_000}}}},
		{Key: "in", Value: bson.D{{Key: "$multiply", Value: bson.A{"$$this", 3}}}}}}}
	update := mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$size", Value: elements}}}}}}}
	_, err := c.UpdateByID(ctx, 1, update)
	return err
}

func deleteMany(ctx context.Context, db *mongo.Database) error {
	_, err := db.Collection("gone").DeleteMany(ctx, bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: 0}}}})
	return err
}

// openTransaction writes 1,000 documents in one transaction that stays open for a second.
func openTransaction(ctx context.Context, db *mongo.Database) error {
	session, err := db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		for id := range 1_000 {
			if _, err := db.Collection("open").InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
				return nil, err
			}
		}
		time.Sleep(time.Second)
		return nil, nil
	})
	return err
}

// probe inserts one document after the other until told to stop, and returns how long each took.
func probe(ctx context.Context, c *mongo.Collection, stop <-chan struct{}) ([]time.Duration, error) {
	var took []time.Duration
	for {
		select {
		case <-stop:
			return took, nil
		default:
		}
		began := time.Now()
		if _, err := c.InsertOne(ctx, bson.D{{Key: "n", Value: len(took)}}); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
}

func main() {
	uri := flag.String("uri", "mongodb://127.0.0.1:27017/", "the server")
	documents := flag.Int("documents", 300_000, "documents to index and to delete")
	transactions := flag.Bool("transactions", false, "also keep a transaction open; needs a replica set")
	flag.Parse()
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI(*uri))
	if err != nil {
		log.Fatal(err)
	}
	load, elsewhere := client.Database("stalls_load"), client.Database("stalls_probe").Collection("c")
	for _, name := range []string{"big", "gone"} {
		if err := fill(ctx, load.Collection(name), *documents); err != nil {
			log.Fatal(err)
		}
	}
	works := []work{
		{"nothing", func(context.Context, *mongo.Database) error { time.Sleep(time.Second); return nil }},
		{"createIndexes", createIndex},
		{"an update over 3,000,000 elements", heavyUpdate},
		{"deleteMany with a filter", deleteMany},
	}
	if *transactions {
		works = append(works, work{"a transaction, open for a second", openTransaction})
	}
	fmt.Printf("%-36s %8s %9s %9s %9s %9s\n", "meanwhile", "took", "inserts", "p50", "p99", "longest")
	for _, work := range works {
		stop, done := make(chan struct{}), make(chan []time.Duration)
		go func() {
			took, err := probe(ctx, elsewhere, stop)
			if err != nil {
				log.Fatal(err)
			}
			done <- took
		}()
		began := time.Now()
		if err := work.run(ctx, load); err != nil {
			log.Fatalf("%s: %v", work.name, err)
		}
		whole := time.Since(began)
		close(stop)
		took := <-done
		slices.Sort(took)
		at := func(share float64) time.Duration { return took[int(share*float64(len(took)-1))] }
		fmt.Printf("%-36s %7.2fs %9d %9v %9v %9v\n", work.name, whole.Seconds(), len(took),
			at(0.5).Round(time.Microsecond), at(0.99).Round(time.Microsecond), at(1).Round(time.Microsecond))
	}
	_ = load.Drop(ctx)
	_ = elsewhere.Database().Drop(ctx)
}
