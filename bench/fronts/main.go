// Measures the CPU time and latency of single operations over PostgreSQL: through fronts, by the official Go driver, or
// by equal SQL statements for comparison.
//
//	go run . -postgres postgres://… -target NAME=URI -front PID,PID -connections 1,8 [-only findOne]
//	go run . -postgres postgres://… -target NAME=postgres -connections 1,8
//
// Prints a line of JSON for each operation: CPU time in microseconds of the fronts, of PostgreSQL's backends and of its
// other processes, and p50 and p99 of the client's latency. A new operation is a row in driver.go, and in sql.go if
// PostgreSQL has an equal statement.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	documents = 10_000
	groups    = 100
	batch     = 1000
)

// operation is a measured operation of a target. Each worker calls run with its own connection or collection.
type operation struct {
	name string
	// Documents of a call, by which its figures are divided.
	documents int
	// Calls per thousand of -calls: fewer for expensive operations.
	share int
	run   func(ctx context.Context, worker int) error
}

// target is a server with its operations.
type target interface {
	prepare(ctx context.Context, workers int) error
	operations() []operation
	close(ctx context.Context)
}

// filler returns incompressible text for a document of some 500 bytes.
func filler() string {
	var text strings.Builder
	for text.Len() < 440 {
		fmt.Fprintf(&text, "%x", rand.Uint64())
	}
	return text.String()[:440]
}

// result is a line of the output.
type result struct {
	Target      string  `json:"target"`
	Operation   string  `json:"operation"`
	Connections int     `json:"connections"`
	Front       float64 `json:"front"`
	Backend     float64 `json:"backend"`
	Others      float64 `json:"others"`
	Median      float64 `json:"median"`
	P99         float64 `json:"p99"`
	Bytes       float64 `json:"bytes"`
	Wal         float64 `json:"wal"`
}

func main() {
	postgres := flag.String("postgres", "", "connection string of the PostgreSQL server")
	database := flag.String("database", "", "the target's database, if it is not the database of -postgres")
	chosen := flag.String("target", "", "NAME=URI of fronts, or NAME=postgres")
	fronts := flag.String("front", "", "process ids of the fronts, separated by commas")
	connections := flag.String("connections", "1,8", "numbers of workers, separated by commas")
	calls := flag.Int("calls", 2000, "measured calls of a cheap operation")
	only := flag.String("only", "", "operations whose name contains this")
	collections := flag.Int("collections", 0, "only measure the creation of this number of collections with two indexes")
	flag.Parse()
	ctx := context.Background()
	name, uri, found := strings.Cut(*chosen, "=")
	if !found {
		log.Fatal("-target NAME=URI")
	}
	usage, err := newUsage(ctx, *postgres, *database, *fronts)
	if err != nil {
		log.Fatal(err)
	}
	if *collections > 0 {
		target := &driver{uri: uri}
		if err := target.prepare(ctx, 1); err != nil {
			log.Fatal(err)
		}
		result, err := measure(ctx, usage, target.newCollection(), 1, *collections)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(result)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	for _, field := range strings.Split(*connections, ",") {
		workers, err := strconv.Atoi(field)
		if err != nil {
			log.Fatal(err)
		}
		var measured target = &driver{uri: uri}
		if uri == "postgres" {
			measured = &sql{url: *postgres}
		}
		if err := measured.prepare(ctx, workers); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		for _, operation := range measured.operations() {
			if !strings.Contains(operation.name, *only) {
				continue
			}
			result, err := measure(ctx, usage, operation, workers, *calls*operation.share/1000)
			if err != nil {
				log.Fatalf("%s, %s: %v", name, operation.name, err)
			}
			result.Target = name
			if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
				log.Fatal(err)
			}
		}
		measured.close(ctx)
	}
}

// measure warms up, then runs the calls between two readings of the processes' usage.
func measure(ctx context.Context, usage *usage, operation operation, workers, calls int) (result, error) {
	if _, err := runCalls(ctx, operation, workers, max(calls/10, workers)); err != nil {
		return result{}, err
	}
	before, err := usage.read(ctx)
	if err != nil {
		return result{}, err
	}
	latencies, err := runCalls(ctx, operation, workers, calls)
	if err != nil {
		return result{}, err
	}
	after, err := usage.read(ctx)
	if err != nil {
		return result{}, err
	}
	slices.Sort(latencies)
	perDocument := func(before, after float64) float64 {
		return (after - before) / float64(len(latencies)*operation.documents)
	}
	quantile := func(share float64) float64 {
		return float64(latencies[int(share*float64(len(latencies)-1))].Nanoseconds()) / 1000
	}
	return result{
		Operation: operation.name, Connections: workers,
		Front: perDocument(before.front, after.front), Backend: perDocument(before.backend, after.backend),
		Others: perDocument(before.others, after.others), Median: quantile(0.5), P99: quantile(0.99),
		Bytes: perDocument(before.bytes, after.bytes), Wal: perDocument(before.wal, after.wal),
	}, nil
}

// runCalls divides the calls among concurrent workers. It returns the latency of each call.
func runCalls(ctx context.Context, operation operation, workers, calls int) ([]time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(calls))
	var group sync.WaitGroup
	latencies, errs := make([][]time.Duration, workers), make([]error, workers)
	for worker := range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			for errs[worker] == nil && left.Add(-1) >= 0 {
				began := time.Now()
				errs[worker] = operation.run(ctx, worker)
				latencies[worker] = append(latencies[worker], time.Since(began))
			}
		}()
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(latencies...), nil
}

// figures are sums since the start: microseconds of CPU, and bytes.
type figures struct{ front, backend, others, bytes, wal float64 }

// usage reads the CPU time of the fronts and of PostgreSQL's processes, and the size of the database and its log.
type usage struct {
	connection *pgx.Conn
	// Process id of this connection's backend, whose CPU time does not count.
	ownBackend uint32
	postmaster string
	database   string
	fronts     []string
}

func newUsage(ctx context.Context, url, database, fronts string) (*usage, error) {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	ownBackend := connection.PgConn().PID()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", ownBackend))
	if err != nil {
		return nil, fmt.Errorf("the PostgreSQL server must run on this machine: %w", err)
	}
	if database == "" {
		database = connection.Config().Database
	}
	usage := &usage{connection: connection, ownBackend: ownBackend, postmaster: statFields(stat)[1], database: database}
	if fronts != "" {
		usage.fronts = strings.Split(fronts, ",")
	}
	return usage, nil
}

// statFields returns the fields of /proc/PID/stat after the name. The first is the state.
func statFields(stat []byte) []string {
	text := string(stat)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+2:])
}

func (u *usage) read(ctx context.Context) (figures, error) {
	var sum figures
	for _, pid := range u.fronts {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return sum, err
		}
		user, _ := strconv.ParseFloat(statFields(stat)[11], 64)
		system, _ := strconv.ParseFloat(statFields(stat)[12], 64)
		// In clock ticks of 10 ms.
		sum.front += (user + system) * 1e4
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return sum, err
	}
	for _, entry := range entries {
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil || statFields(stat)[1] != u.postmaster || entry.Name() == fmt.Sprint(u.ownBackend) {
			continue
		}
		title, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		// Nanoseconds on a processor, nanoseconds in the run queue, number of time slices.
		sched, err := os.ReadFile("/proc/" + entry.Name() + "/schedstat")
		if err != nil {
			continue
		}
		ran, _ := strconv.ParseFloat(strings.Fields(string(sched))[0], 64)
		if strings.Contains(string(title), "127.0.0.1(") {
			sum.backend += ran / 1000
		} else {
			sum.others += ran / 1000
		}
	}
	err = u.connection.QueryRow(ctx,
		"select pg_database_size($1), (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8", u.database).
		Scan(&sum.bytes, &sum.wal)
	return sum, err
}
