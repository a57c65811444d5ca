package vellumtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Args are options of the shared server beyond its port, such as "--replset", "rs0". Set them in TestMain.
var Args []string

// User, set in TestMain, has a shared server that only users get into: url.UserPassword("root", "secret").
var User *url.Userinfo

// URIOptions are added to the shared server's connection string, such as "tlsCAFile=ca.pem" where Args ask for TLS. Set
// them in TestMain.
var URIOptions string

const nameBytesMax = 63

var (
	shared    = sync.OnceValues(connect)
	templates sync.Map
	numbers   atomic.Int64
)

type connection struct {
	client *mongo.Client
	uri    string
}

// A template is built by whoever asks first; the others wait for it.
type template struct {
	once sync.Once
	name string
	err  error
}

func connect() (connection, error) {
	server, err := start(User, URIOptions, Args)
	if err != nil {
		return connection{}, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI))
	return connection{client, server.URI}, err
}

// Client is connected to the server that all tests of this binary share.
func Client(t testing.TB) *mongo.Client {
	t.Helper()
	found, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return found.client
}

// URI is the shared server's connection string.
func URI(t testing.TB) string {
	t.Helper()
	Client(t)
	found, _ := shared()
	return found.uri
}

// Database is empty, and the test's own: it is dropped when the test ends.
func Database(t testing.TB) *mongo.Database {
	t.Helper()
	db := Client(t).Database(name(t))
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	return db
}

// Fork is a database of the test's own with all that build puts into it. A function is called once; every test
// gets a copy-on-write twin of what it built, in time that doesn't grow with documents.
func Fork(t testing.TB, build func(context.Context, *mongo.Database) error) *mongo.Database {
	t.Helper()
	client := Client(t)
	// Of functions only the code is known: closures made at one place are one template.
	entry, _ := templates.LoadOrStore(reflect.ValueOf(build).Pointer(), &template{})
	origin := entry.(*template)
	origin.once.Do(func() {
		origin.name = fmt.Sprintf("template_%d_%d", os.Getpid(), numbers.Add(1))
		origin.err = build(context.Background(), client.Database(origin.name))
	})
	if origin.err != nil {
		t.Fatalf("building the template by %s: %v", runtime.FuncForPC(reflect.ValueOf(build).Pointer()).Name(), origin.err)
	}
	db := Database(t)
	command(t, client, bson.D{{Key: "forkDatabase", Value: origin.name}, {Key: "to", Value: db.Name()}})
	return db
}

// Reset empties every collection; collections, indexes and validators stay.
func Reset(t testing.TB, db *mongo.Database) {
	t.Helper()
	command(t, db.Client(), bson.D{{Key: "resetDatabase", Value: db.Name()}})
}

// Snapshot keeps the database's state under a name, replacing an earlier one, until the test ends.
func Snapshot(t testing.TB, db *mongo.Database, name string) {
	t.Helper()
	command(t, db.Client(), bson.D{{Key: "snapshotDatabase", Value: db.Name()}, {Key: "name", Value: name}, {Key: "replace", Value: true}})
	t.Cleanup(func() {
		// A second snapshot of this name has gone with the first.
		admin := db.Client().Database("admin")
		_ = admin.RunCommand(context.Background(), bson.D{{Key: "dropSnapshot", Value: db.Name()}, {Key: "name", Value: name}})
	})
}

// Restore puts the database back into the state of a snapshot, which stays.
func Restore(t testing.TB, db *mongo.Database, name string) {
	t.Helper()
	command(t, db.Client(), bson.D{{Key: "restoreDatabase", Value: db.Name()}, {Key: "name", Value: name}})
}

func command(t testing.TB, client *mongo.Client, command bson.D) {
	t.Helper()
	if err := client.Database("admin").RunCommand(context.Background(), command).Err(); err != nil {
		t.Fatalf("%s: %v", command[0].Key, err)
	}
}

// name tells which test a database is of, and differs from all others.
func name(t testing.TB) string {
	end := fmt.Sprintf("_%d_%d", os.Getpid(), numbers.Add(1))
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '_'
	}, t.Name())
	return clean[:min(len(clean), nameBytesMax-len(end))] + end
}
