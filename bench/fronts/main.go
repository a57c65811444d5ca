// Measures what single operations cost over PostgreSQL: through fronts by the official Go driver, or, for comparison,
// by statements of PostgreSQL's own that do the same.
//
//	go run . -postgres postgres://… -target NAME=URI -front PID,PID -connections 1,8 [-only findOne]
//	go run . -postgres postgres://… -target NAME=postgres -connections 1,8
//
// Prints a line of JSON for each operation: CPU time in microseconds of the fronts, of PostgreSQL's backends and of its
// other processes, and the median and the 99th percentile of how long the client waited.
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

// operation is one of a target: run is called by each worker with a connection or collection of its own.
type operation struct {
	name string
	// How many documents each call is about.
	per int
	// How many calls there are of a thousand.
	share int
	run   func(ctx context.Context, worker int) error
}

// target does the operations.
type target interface {
	prepare(ctx context.Context, workers int) error
	operations() []operation
	close(ctx context.Context)
}

// filler is the text of a document of some 500 bytes, of which little can be compressed away.
func filler() string {
	var text strings.Builder
	for text.Len() < 440 {
		fmt.Fprintf(&text, "%x", rand.Uint64())
	}
	return text.String()[:440]
}

type line struct {
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
	postgres := flag.String("postgres", "", "the server, as pgx takes it")
	database := flag.String("database", "", "the database that the target uses, where it is another")
	chosen := flag.String("target", "", "NAME=URI of fronts, or NAME=postgres")
	fronts := flag.String("front", "", "the fronts' processes")
	connections := flag.String("connections", "1,8", "how many workers")
	calls := flag.Int("calls", 2000, "how many calls of a cheap operation are measured")
	only := flag.String("only", "", "operations whose name contains this")
	collections := flag.Int("collections", 0, "make so many collections with two indexes, and measure nothing else")
	flag.Parse()
	ctx := context.Background()
	name, place, found := strings.Cut(*chosen, "=")
	if !found {
		log.Fatal("-target NAME=URI")
	}
	watch, err := newWatch(ctx, *postgres, *database, *fronts)
	if err != nil {
		log.Fatal(err)
	}
	if *collections > 0 {
		target := &driver{uri: place}
		if err := target.prepare(ctx, 1); err != nil {
			log.Fatal(err)
		}
		told, err := measure(ctx, watch, target.newCollection(), 1, *collections)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(told)
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
		var measured target = &driver{uri: place}
		if place == "postgres" {
			measured = &sql{url: *postgres}
		}
		if err := measured.prepare(ctx, workers); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		for _, one := range measured.operations() {
			if !strings.Contains(one.name, *only) {
				continue
			}
			told, err := measure(ctx, watch, one, workers, *calls*one.share/1000)
			if err != nil {
				log.Fatalf("%s, %s: %v", name, one.name, err)
			}
			told.Target = name
			if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
				log.Fatal(err)
			}
		}
		measured.close(ctx)
	}
}

func measure(ctx context.Context, watch *watch, one operation, workers, calls int) (line, error) {
	if _, err := spread(ctx, one, workers, max(calls/10, workers)); err != nil {
		return line{}, err
	}
	before, err := watch.read(ctx)
	if err != nil {
		return line{}, err
	}
	took, err := spread(ctx, one, workers, calls)
	if err != nil {
		return line{}, err
	}
	after, err := watch.read(ctx)
	if err != nil {
		return line{}, err
	}
	slices.Sort(took)
	each := func(before, after float64) float64 { return (after - before) / float64(len(took)*one.per) }
	micros := func(at float64) float64 {
		return float64(took[int(at*float64(len(took)-1))].Nanoseconds()) / 1000
	}
	return line{
		Operation: one.name, Connections: workers,
		Front: each(before.front, after.front), Backend: each(before.backend, after.backend),
		Others: each(before.others, after.others), Median: micros(0.5), P99: micros(0.99),
		Bytes: each(before.bytes, after.bytes), Wal: each(before.wal, after.wal),
	}, nil
}

// spread makes the calls on as many workers at a time; how long each took.
func spread(ctx context.Context, one operation, workers, calls int) ([]time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(calls))
	var group sync.WaitGroup
	took, errs := make([][]time.Duration, workers), make([]error, workers)
	for worker := range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			for errs[worker] == nil && left.Add(-1) >= 0 {
				began := time.Now()
				errs[worker] = one.run(ctx, worker)
				took[worker] = append(took[worker], time.Since(began))
			}
		}()
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(took...), nil
}

// figures are sums since the start: microseconds of CPU, and bytes.
type figures struct{ front, backend, others, bytes, wal float64 }

// watch reads what the processes have used.
type watch struct {
	connection *pgx.Conn
	// Its own backend, which is nobody's.
	own        uint32
	postmaster string
	database   string
	fronts     []string
}

func newWatch(ctx context.Context, url, database, fronts string) (*watch, error) {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	own := connection.PgConn().PID()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", own))
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL's server has to run here: %w", err)
	}
	if database == "" {
		database = connection.Config().Database
	}
	found := &watch{connection: connection, own: own, postmaster: fields(stat)[1], database: database}
	if fronts != "" {
		found.fronts = strings.Split(fronts, ",")
	}
	return found, nil
}

// fields are those of /proc/PID/stat behind the name: the first is the state.
func fields(stat []byte) []string {
	text := string(stat)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+2:])
}

func (w *watch) read(ctx context.Context) (figures, error) {
	var sum figures
	for _, pid := range w.fronts {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return sum, err
		}
		user, _ := strconv.ParseFloat(fields(stat)[11], 64)
		system, _ := strconv.ParseFloat(fields(stat)[12], 64)
		// In hundredths of a second.
		sum.front += (user + system) * 1e4
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return sum, err
	}
	for _, entry := range entries {
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil || fields(stat)[1] != w.postmaster || entry.Name() == fmt.Sprint(w.own) {
			continue
		}
		title, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		// In nanoseconds: what it has run, what it has waited, how often.
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
	err = w.connection.QueryRow(ctx,
		"select pg_database_size($1), (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8", w.database).
		Scan(&sum.bytes, &sum.wal)
	return sum, err
}
