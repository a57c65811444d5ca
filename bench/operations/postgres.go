// PostgreSQL beside the servers, for what single inserts take: the fields of the documents as columns.

package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

const insertSQL = "insert into inserts values ($1, $2, $3)"

// postgres is a server, and connections to it.
type postgres struct {
	address, user, database string
	connections             []*pgx.Conn
	// Its first process, of which the others are children.
	pid  int
	next atomic.Int64
}

func onPostgres(ctx context.Context, uri string, workers int, only string) ([]work, func(), error) {
	s := &postgres{}
	for range workers {
		connection, err := pgx.Connect(ctx, uri)
		if err != nil {
			return nil, nil, err
		}
		s.connections = append(s.connections, connection)
	}
	config := s.connections[0].Config()
	s.address, s.user, s.database = fmt.Sprintf("%s:%d", config.Host, config.Port), config.User, config.Database
	var folder string
	if err := s.connections[0].QueryRow(ctx, "show data_directory").Scan(&folder); err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(folder + "/postmaster.pid")
	if err != nil {
		return nil, nil, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if s.pid, err = strconv.Atoi(first); err != nil {
		return nil, nil, err
	}
	var works []work
	for _, one := range []work{s.inserts(), bareSQL(s, workers)} {
		if wanted(one.name, only) {
			works = append(works, one)
		}
	}
	return works, func() {
		for _, connection := range s.connections {
			connection.Close(ctx)
		}
	}, nil
}

func (s *postgres) table(ctx context.Context) error {
	_, err := s.connections[0].Exec(ctx, "drop table if exists inserts; create table inserts (id int8 primary key, n int8, text text)")
	return err
}

func (s *postgres) inserts() work {
	text := strings.Repeat("x", 460)
	return work{
		name:    "insert one 500-byte document",
		prepare: s.table,
		run: func(ctx context.Context, worker int) error {
			_, err := s.connections[worker].Exec(ctx, insertSQL, s.next.Add(1), 0, text)
			return err
		},
		calls:   20_000,
		perCall: 1,
		used:    s.used,
	}
}

// used is the CPU time of all its processes, those that have ended included.
func (s *postgres) used() float64 {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		log.Fatal(err)
	}
	sum := 0.0
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
		if pid != s.pid && fields[1] != strconv.Itoa(s.pid) {
			continue
		}
		times := fields[11:13]
		if pid == s.pid {
			times = fields[11:15]
		}
		for _, field := range times {
			ticked, _ := strconv.ParseFloat(field, 64)
			sum += ticked
		}
	}
	return sum * 1e6 / ticks
}
