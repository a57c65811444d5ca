// Command callers increments counters with the Go driver: `callers URI CLIENTS`. tests/crash/retries describes input and
// output.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var increment = bson.M{"$inc": bson.M{"n": 1}}

type caller struct {
	kind, id         string
	returned, failed int
}

// call increments the counter once.
func (c *caller) call(client *mongo.Client) error {
	ctx, filter := context.Background(), bson.M{"_id": c.id}
	a, b := client.Database("crash").Collection("a"), client.Database("crash").Collection("b")
	switch c.kind {
	case "transaction":
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if _, err := a.UpdateOne(ctx, filter, increment); err != nil {
				return nil, err
			}
			return b.UpdateOne(ctx, filter, increment)
		})
		return err
	case "update":
		_, err := a.UpdateOne(ctx, filter, increment)
		return err
	default:
		return a.FindOneAndUpdate(ctx, filter, increment).Err()
	}
}

func main() {
	clients, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	settings := options.Client().ApplyURI(os.Args[1]).SetServerSelectionTimeout(time.Minute)
	client, err := mongo.Connect(settings)
	if err != nil {
		log.Fatal(err)
	}
	var callers []*caller
	for _, kind := range []string{"transaction", "update", "modify"} {
		for number := range clients {
			id := fmt.Sprintf("go-%s-%d", kind, number)
			for _, half := range []string{"a", "b"} {
				document := bson.M{"_id": id, "n": 0}
				if _, err := client.Database("crash").Collection(half).InsertOne(context.Background(), document); err != nil {
					log.Fatal(err)
				}
			}
			callers = append(callers, &caller{kind: kind, id: id})
		}
	}
	fmt.Println("ready")
	var stops atomic.Bool
	var running sync.WaitGroup
	for _, c := range callers {
		running.Go(func() {
			for !stops.Load() {
				if err := c.call(client); err != nil {
					c.failed++
					log.Print(c.id, ": ", err)
				} else {
					c.returned++
				}
			}
		})
	}
	io.Copy(io.Discard, os.Stdin)
	stops.Store(true)
	running.Wait()
	counts := map[string][2]int{}
	for _, c := range callers {
		counts[c.id] = [2]int{c.returned, c.failed}
	}
	json.NewEncoder(os.Stdout).Encode(counts)
}
