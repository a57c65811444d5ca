// Measuring: calls by several workers, and the CPU time that the server uses meanwhile.

package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// ticks is the kernel's clock rate for /proc/PID/stat.
const ticks = 100

// server's CPU time so far, in microseconds.
func cpuMicros(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		log.Fatalf("reading the server's CPU time: %v", err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) * 1e6 / ticks
}

// work is what is measured: calls after a warm-up, by workers that each have a number.
type work struct {
	name    string
	prepare func(context.Context) error
	run     func(ctx context.Context, worker int) error
	// What belongs to the work and comes after the last call, if anything does.
	finish func(context.Context) error
	calls  int
	// How many operations a call is.
	perCall int
	// The CPU time that the server has used so far, in microseconds.
	used func() float64
	cold bool
}

// on makes a workload's work of a database.
func (one workload) on(db *mongo.Database, used func() float64) work {
	run, calls, perCall := one.run, one.operations, 1
	if run == nil {
		run, calls, perCall = insertMany, one.operations/1000, 1000
	} else if strings.Contains(one.name, "(per document)") {
		perCall = 100_000
	}
	return work{
		name:    one.name,
		prepare: func(ctx context.Context) error { return one.prepare(ctx, db) },
		run:     func(ctx context.Context, worker int) error { return run(ctx, db, worker) },
		calls:   calls,
		perCall: perCall,
		used:    used,
	}
}

// measure does a share of the calls, and prints a line.
func (w work) measure(ctx context.Context, workers int, share float64) error {
	if err := w.prepare(ctx); err != nil {
		return err
	}
	calls := max(int(float64(w.calls)*share), 1)
	if !w.cold {
		spread(ctx, w.run, calls/10, workers)
	}
	cpu, began := w.used(), time.Now()
	waits := spread(ctx, w.run, calls, workers)
	if w.finish != nil {
		if err := w.finish(ctx); err != nil {
			return err
		}
	}
	took, used := time.Since(began).Seconds(), w.used()-cpu
	operations := float64(calls * w.perCall)
	slices.Sort(waits)
	median := float64(waits[len(waits)/2].Nanoseconds()) / 1000
	fmt.Printf("%-48s %5d %12.0f %16.2f %10.1f\n", w.name, workers, operations/took, used/operations, median)
	return nil
}

// spread makes the calls on as many workers at a time, and tells how long each took.
func spread(ctx context.Context, run func(context.Context, int) error, calls, workers int) []time.Duration {
	var left atomic.Int64
	left.Store(int64(calls))
	var group sync.WaitGroup
	waits := make([][]time.Duration, workers)
	for worker := range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := run(ctx, worker); err != nil {
					log.Fatal(err)
				}
				waits[worker] = append(waits[worker], time.Since(began))
			}
		}()
	}
	group.Wait()
	return slices.Concat(waits...)
}
