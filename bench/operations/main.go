// Measures what single operations cost a server, through the official Go driver: operations per
// second and the median wait as a client sees them, and the CPU time (user + system) of the server
// process for each.
//
//	go run . -uri mongodb://127.0.0.1:27017/ -pid PID [-connections 1,16] [-only insert,find]
//	go run . -uri postgres://postgres@127.0.0.1:5432/postgres -connections 1,8
//
// CPU per operation is the figure to compare: throughput on a shared machine is noise. Every
// workload runs for the same number of operations after a warm-up, on its own collection. PostgreSQL
// takes part in single inserts; it finds its processes itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	uri := flag.String("uri", "mongodb://127.0.0.1:27017/", "the server")
	pid := flag.Int("pid", 0, "the server's process, whose CPU time is read")
	connections := flag.String("connections", "1,16", "how many connections work at a time")
	only := flag.String("only", "", "workloads whose name contains one of these words")
	share := flag.Float64("share", 1, "the share of the calls that is made")
	forget := flag.Bool("forget", false, "drop all databases, and measure nothing")
	flag.Parse()
	ctx := context.Background()
	if *forget {
		if err := dropAll(ctx, *uri); err != nil {
			log.Fatal(err)
		}
		return
	}
	fmt.Printf("%-48s %5s %12s %16s %10s\n", "work", "conns", "per second", "server CPU µs/op", "median µs")
	for _, field := range strings.Split(*connections, ",") {
		workers, err := strconv.Atoi(field)
		if err != nil {
			log.Fatal(err)
		}
		works, done, err := all(ctx, *uri, *pid, workers, *only)
		if err != nil {
			log.Fatal(err)
		}
		for _, work := range works {
			if err := work.measure(ctx, workers, *share); err != nil {
				log.Fatalf("%s: %v", work.name, err)
			}
		}
		done()
	}
}

// all gives the works whose names are wanted, and what ends them.
func all(ctx context.Context, uri string, pid, workers int, only string) ([]work, func(), error) {
	if strings.HasPrefix(uri, "postgres:") {
		return onPostgres(ctx, uri, workers, only)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMaxPoolSize(uint64(workers)).SetMinPoolSize(uint64(workers)))
	if err != nil {
		return nil, nil, err
	}
	used := func() float64 { return cpuMicros(pid) }
	db := client.Database("bench")
	inTransactions := isSet(ctx, uri)
	var works []work
	for _, one := range slices.Concat(workloads(), cleanSlates(), tracker()) {
		if wanted(one.name, only) && (inTransactions || !strings.Contains(one.name, "transaction")) {
			works = append(works, one.on(db, used))
		}
	}
	for _, one := range []work{load(db, used), bareInserts(uri, db, used, workers)} {
		if wanted(one.name, only) {
			works = append(works, one)
		}
	}
	return works, func() {
		if err := client.Disconnect(ctx); err != nil {
			log.Fatal(err)
		}
	}, nil
}

// dropAll drops every database that there is.
func dropAll(ctx context.Context, uri string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer client.Disconnect(ctx)
	names, err := client.ListDatabaseNames(ctx, bson.D{})
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains([]string{"admin", "config", "local"}, name) {
			continue
		}
		if err := client.Database(name).Drop(ctx); err != nil {
			return err
		}
	}
	return nil
}

// isSet tells whether the server is a replica set.
func isSet(ctx context.Context, uri string) bool {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Disconnect(ctx)
	var hello struct{ SetName string }
	// Some servers don't know it, and have no sets.
	err = client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	var refused mongo.CommandError
	if err != nil && !errors.As(err, &refused) {
		log.Fatal(err)
	}
	return hello.SetName != ""
}

func wanted(name, only string) bool {
	if only == "" {
		return true
	}
	for _, word := range strings.Split(only, ",") {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
