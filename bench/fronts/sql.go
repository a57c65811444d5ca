package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// sql measures PostgreSQL itself: rows with a key, two columns and a document's bytes, and the indexes of the collections.
type sql struct {
	url         string
	connections []*pgx.Conn
	next        atomic.Int64
}

func (s *sql) prepare(ctx context.Context, workers int) error {
	for range workers {
		connection, err := pgx.Connect(ctx, s.url)
		if err != nil {
			return err
		}
		// Fronts also commit in this mode.
		if _, err := connection.Exec(ctx, "set synchronous_commit = off"); err != nil {
			return err
		}
		s.connections = append(s.connections, connection)
	}
	s.next.Store(documents)
	for _, statement := range []string{
		"drop schema if exists rows cascade", "create schema rows",
		"create table rows.points (id int8 primary key, g int8, n int8, doc bytea) with (fillfactor = 80)",
		"create table rows.plain (id int8 primary key, g int8, n int8, doc bytea)",
		"create table rows.indexed (id int8 primary key, g int8, n int8, doc bytea)",
		"create table rows.many (id int8 primary key, g int8, n int8, doc bytea)",
		"create index on rows.points (g)", "create index on rows.indexed (g)", "create index on rows.indexed (n)",
	} {
		if _, err := s.connections[0].Exec(ctx, statement); err != nil {
			return err
		}
	}
	for start := int64(0); start < documents; start += batch {
		if err := s.insertMany(ctx, 0, "points", start); err != nil {
			return err
		}
	}
	return nil
}

func bytesOf(id int64) []byte {
	doc, err := bson.Marshal(document(id))
	if err != nil {
		panic(err)
	}
	return doc
}

func (s *sql) insertMany(ctx context.Context, worker int, name string, start int64) error {
	ids, gs, docs := make([]int64, batch), make([]int64, batch), make([][]byte, batch)
	for at := range ids {
		ids[at], gs[at], docs[at] = start+int64(at), (start+int64(at))%groups, bytesOf(start+int64(at))
	}
	_, err := s.connections[worker].Exec(ctx,
		"insert into rows."+name+" select * from unnest($1::int8[], $2::int8[], $1::int8[], $3::bytea[])", ids, gs, docs)
	return err
}

func (s *sql) insertOne(name string) func(context.Context, int) error {
	return func(ctx context.Context, worker int) error {
		id := s.next.Add(1)
		_, err := s.connections[worker].Exec(ctx, "insert into rows."+name+" values ($1, $2, $1, $3)", id, id%groups, bytesOf(id))
		return err
	}
}

func (s *sql) operations() []operation {
	var one int
	var doc []byte
	return []operation{
		{"select 1", 1, 1000, func(ctx context.Context, worker int) error {
			one := one
			return s.connections[worker].QueryRow(ctx, "select 1").Scan(&one)
		}},
		{"findOne by _id", 1, 1000, func(ctx context.Context, worker int) error {
			doc := doc
			return s.connections[worker].QueryRow(ctx, "select doc from rows.points where id = $1", rand.Int64N(documents)).Scan(&doc)
		}},
		{"insertOne", 1, 1000, s.insertOne("plain")},
		{"insertOne, two more indexes", 1, 1000, s.insertOne("indexed")},
		{"insertMany of 1,000, for each", batch, 10, func(ctx context.Context, worker int) error {
			return s.insertMany(ctx, worker, "many", s.next.Add(batch)-batch)
		}},
		{"updateOne by _id", 1, 1000, func(ctx context.Context, worker int) error {
			id := rand.Int64N(documents)
			_, err := s.connections[worker].Exec(ctx, "update rows.points set doc = $2 where id = $1", id, bytesOf(id))
			return err
		}},
		{"find of 100 by an index", 1, 250, func(ctx context.Context, worker int) error {
			rows, err := s.connections[worker].Query(ctx, "select doc from rows.points where g = $1 limit 101", rand.Int64N(groups))
			if err != nil {
				return err
			}
			_, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
			return err
		}},
	}
}

func (s *sql) close(ctx context.Context) {
	for _, connection := range s.connections {
		connection.Close(ctx)
	}
	s.connections = nil
}
