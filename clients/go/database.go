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

// Args are options of the shared server besides its port, such as "--replset", "rs0". Set them in TestMain.
var Args []string

// User enables access control of the shared server: url.UserPassword("root", "secret"). Set it in TestMain.
var User *url.Userinfo

// URIOptions are added to the shared server's connection string, such as "tlsCAFile=ca.pem" if Args enable
// TLS. Set them in TestMain.
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

// The first test that needs a template builds it. Other tests wait.
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

// Client returns a client of the server that all tests of this binary share.
func Client(t testing.TB) *mongo.Client {
	t.Helper()
	connection, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return connection.client
}

// URI returns the shared server's connection string.
func URI(t testing.TB) string {
	t.Helper()
	Client(t)
	connection, _ := shared()
	return connection.uri
}

// Database returns an empty database for the test. It is dropped when the test ends.
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

// Fork returns a database for the test with all data that build inserts. Each function is called once. Every
// test gets a copy-on-write fork of its database. The time does not depend on the number of documents.
func Fork(t testing.TB, build func(context.Context, *mongo.Database) error) *mongo.Database {
	t.Helper()
	client := Client(t)
	// Functions are identified by their code: closures created at one place are one template.
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

// Reset empties every collection. Collections, indexes and validators stay.
func Reset(t testing.TB, db *mongo.Database) {
	t.Helper()
	command(t, db.Client(), bson.D{{Key: "resetDatabase", Value: db.Name()}})
}

// Snapshot saves the database's state under a name until the test ends. It replaces an earlier snapshot of
// this name.
func Snapshot(t testing.TB, db *mongo.Database, name string) {
	t.Helper()
	command(t, db.Client(), bson.D{{Key: "snapshotDatabase", Value: db.Name()}, {Key: "name", Value: name}, {Key: "replace", Value: true}})
	t.Cleanup(func() {
		// Errors are ignored: the cleanup of a later snapshot of this name may have removed it.
		admin := db.Client().Database("admin")
		_ = admin.RunCommand(context.Background(), bson.D{{Key: "dropSnapshot", Value: db.Name()}, {Key: "name", Value: name}})
	})
}

// Restore restores the database from a snapshot, which stays.
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

// name returns a unique database name that contains the test's name.
func name(t testing.TB) string {
	suffix := fmt.Sprintf("_%d_%d", os.Getpid(), numbers.Add(1))
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '_'
	}, t.Name())
	return clean[:min(len(clean), nameBytesMax-len(suffix))] + suffix
}
