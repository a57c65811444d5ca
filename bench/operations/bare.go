// Single inserts by clients that are nothing but a socket, so that what drivers cost is left out where two protocols
// are compared: a request is some bytes put together here, and the reply is looked at for an error alone.

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const bareName = "insert by a bare socket"

// lines are the connections of the workers, made anew by each preparation.
type lines struct {
	address string
	open    []net.Conn
	buffers [][]byte
}

func (l *lines) connect(workers int) error {
	l.close()
	for range workers {
		connection, err := net.Dial("tcp", l.address)
		if err != nil {
			return err
		}
		l.open = append(l.open, connection)
		l.buffers = append(l.buffers, make([]byte, 64<<10))
	}
	return nil
}

func (l *lines) close() {
	for _, connection := range l.open {
		connection.Close()
	}
	l.open, l.buffers = nil, nil
}

// message is an OP_MSG with a document and a sequence of one more.
func message(body, document []byte) []byte {
	const name = "documents\x00"
	length := 16 + 4 + 1 + len(body) + 1 + 4 + len(name) + len(document)
	out := make([]byte, 0, length)
	for _, number := range []int{length, 1, 0, 2013, 0} {
		out = binary.LittleEndian.AppendUint32(out, uint32(number))
	}
	out = append(out, 0)
	out = append(out, body...)
	out = append(out, 1)
	out = binary.LittleEndian.AppendUint32(out, uint32(4+len(name)+len(document)))
	out = append(out, name...)
	return append(out, document...)
}

func bareInserts(uri string, db *mongo.Database, used func() float64, workers int) work {
	var next atomic.Int64
	parsed, err := url.Parse(uri)
	sockets := &lines{}
	if err == nil {
		sockets.address = parsed.Host
	}
	body, bodyError := bson.Marshal(bson.D{{Key: "insert", Value: "bare"}, {Key: "$db", Value: db.Name()}})
	return work{
		name: bareName,
		prepare: func(ctx context.Context) error {
			if bodyError != nil {
				return bodyError
			}
			if err := db.Collection("bare").Drop(ctx); err != nil {
				return err
			}
			return sockets.connect(workers)
		},
		run: func(_ context.Context, worker int) error {
			inserted, err := bson.Marshal(document(int(next.Add(1))))
			if err != nil {
				return err
			}
			socket, buffer := sockets.open[worker], sockets.buffers[worker]
			if _, err := socket.Write(message(body, inserted)); err != nil {
				return err
			}
			if _, err := io.ReadFull(socket, buffer[:4]); err != nil {
				return err
			}
			reply := buffer[4:binary.LittleEndian.Uint32(buffer)]
			if _, err := io.ReadFull(socket, reply); err != nil {
				return err
			}
			if bytes.Contains(reply, []byte("rrors")) || bytes.Contains(reply, []byte("errmsg")) {
				return fmt.Errorf("the reply to a bare insert: %q", reply)
			}
			return nil
		},
		calls:   20_000,
		perCall: 1,
		used:    used,
	}
}

// typed is a message of PostgreSQL's protocol.
func typed(kind byte, body []byte) []byte {
	out := []byte{kind}
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	return append(out, body...)
}

// bareSQL inserts by a prepared statement and bare messages.
func bareSQL(s *postgres, workers int) work {
	sockets := &lines{address: s.address}
	until := func(worker int) error {
		socket, buffer := sockets.open[worker], sockets.buffers[worker]
		for {
			if _, err := io.ReadFull(socket, buffer[:5]); err != nil {
				return err
			}
			kind, rest := buffer[0], buffer[5:1+binary.BigEndian.Uint32(buffer[1:])]
			if _, err := io.ReadFull(socket, rest); err != nil {
				return err
			}
			switch kind {
			case 'E':
				return fmt.Errorf("the reply to a bare insert: %q", rest)
			case 'Z':
				return nil
			}
		}
	}
	return work{
		name: bareName,
		prepare: func(ctx context.Context) error {
			if err := s.table(ctx); err != nil {
				return err
			}
			if err := sockets.connect(workers); err != nil {
				return err
			}
			for worker, socket := range sockets.open {
				begin := "\x00\x03\x00\x00user\x00" + s.user + "\x00database\x00" + s.database + "\x00\x00"
				begin = string(binary.BigEndian.AppendUint32(nil, uint32(4+len(begin)))) + begin
				parse := "one\x00" + insertSQL + "\x00\x00\x00"
				if _, err := socket.Write([]byte(begin)); err != nil {
					return err
				}
				if err := until(worker); err != nil {
					return err
				}
				if _, err := socket.Write(append(typed('P', []byte(parse)), typed('S', nil)...)); err != nil {
					return err
				}
				if err := until(worker); err != nil {
					return err
				}
			}
			return nil
		},
		run: func(_ context.Context, worker int) error {
			id := s.next.Add(1)
			// An unnamed portal of the statement, all parameters binary, and all results.
			bind := []byte("\x00one\x00\x00\x01\x00\x01\x00\x03")
			bind = binary.BigEndian.AppendUint32(bind, 8)
			bind = binary.BigEndian.AppendUint64(bind, uint64(id))
			bind = binary.BigEndian.AppendUint32(bind, 8)
			bind = binary.BigEndian.AppendUint64(bind, 0)
			text := strings.Repeat("x", 460)
			bind = binary.BigEndian.AppendUint32(bind, uint32(len(text)))
			bind = append(append(bind, text...), "\x00\x01\x00\x01"...)
			out := typed('B', bind)
			out = append(out, typed('E', []byte{0, 0, 0, 0, 0})...)
			if _, err := sockets.open[worker].Write(append(out, typed('S', nil)...)); err != nil {
				return err
			}
			return until(worker)
		},
		calls:   20_000,
		perCall: 1,
		used:    s.used,
	}
}
