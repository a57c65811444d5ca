package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A loginRound is what one round says of one way: CPU of both sides for a client that connects, asks once and goes, and a
// pool of connections opened at once.
type loginRound struct {
	server, client, pool []float64
	took                 []float64
}

// measureLogins compares the ways to log in with a server that lets everybody in. A new client hashes the password, and
// has a connection of its own to watch the server, which doesn't log in; a pool hashes once for all its connections.
func measureLogins(file string, encrypted *tls.Config) {
	ways := []*way{
		{name: "no users"},
		{name: "SCRAM-SHA-1", mechanism: "SCRAM-SHA-1"},
		{name: "SCRAM-SHA-256", mechanism: "SCRAM-SHA-256"},
		{name: "SCRAM-SHA-256 over TLS 1.3", mechanism: "SCRAM-SHA-256", config: encrypted},
	}
	found := make([]loginRound, len(ways))
	for _, w := range ways {
		w.start(file)
		w.connect()
	}
	for range *rounds {
		for at, w := range ways {
			server, client := w.cpu(), ownCPU()
			for range *logins {
				w.connect()
			}
			count, round := float64(*logins), &found[at]
			round.server = append(round.server, (w.cpu()-server)/count)
			round.client = append(round.client, (ownCPU()-client)/count)
			server = w.cpu()
			round.took = append(round.took, w.fill())
			round.pool = append(round.pool, (w.cpu()-server)/float64(*connections))
		}
	}
	fmt.Printf("| | a client that connects, CPU of the server | of the client | %d connections at once, CPU of the server for each | time |\n", *connections)
	fmt.Println("|---|---|---|---|---|")
	for at, w := range ways {
		round := found[at]
		fmt.Printf("| %s | %.0f µs | %.0f µs | %.0f µs | %.0f ms |\n",
			w.name, median(round.server), median(round.client), median(round.pool), median(round.took))
		w.stop()
	}
}

// connect is a new client that asks once.
func (w *way) connect() {
	client := must(mongo.Connect(w.options()))
	check(client.Ping(context.Background(), nil))
	check(client.Disconnect(context.Background()))
}

// fill opens connections at once, each held by a hello that waits for a change, until all of them are ready.
func (w *way) fill() float64 {
	var ready atomic.Int64
	done := make(chan struct{})
	monitor := &event.PoolMonitor{Event: func(said *event.PoolEvent) {
		if said.Type == event.ConnectionReady && ready.Add(1) == int64(*connections) {
			close(done)
		}
	}}
	var hello struct {
		TopologyVersion bson.Raw `bson:"topologyVersion"`
	}
	check(w.client.Database("admin").RunCommand(context.Background(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
	waiting := bson.D{
		{Key: "hello", Value: 1}, {Key: "topologyVersion", Value: hello.TopologyVersion}, {Key: "maxAwaitTimeMS", Value: 60_000},
	}
	count := uint64(*connections)
	client := must(mongo.Connect(w.options().SetMaxPoolSize(count).SetMaxConnecting(count).SetPoolMonitor(monitor)))
	within, cancel := context.WithCancel(context.Background())
	began := time.Now()
	for range count {
		go func() { _ = client.Database("admin").RunCommand(within, waiting).Err() }()
	}
	<-done
	took := float64(time.Since(began).Microseconds()) / 1000
	cancel()
	check(client.Disconnect(context.Background()))
	return took
}

// ownCPU is this process's time so far, in microseconds.
func ownCPU() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1000
}
