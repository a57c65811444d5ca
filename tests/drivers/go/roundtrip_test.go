// Package drivertest runs MongoDB's Go driver against a Vellum server.
//
// The address comes from VELLUM_URI. A log message of the driver above debug level fails the run, and so does a
// deprecation.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

type person struct {
	ID    int      `bson:"_id"`
	Name  string   `bson:"name"`
	Born  int32    `bson:"born"`
	Works []string `bson:"works,omitempty"`
}

var composers = []person{
	{1, "Clara", 1819, []string{"Trio", "Konzert"}},
	{2, "Fanny", 1805, []string{"Das Jahr"}},
	{3, "Amy", 1867, nil},
}

// complaints collects the driver's log messages above debug level.
type complaints struct {
	sync.Mutex
	lines []string
}

func (c *complaints) Info(level int, message string, values ...any) {
	// Level 0 is for operators. The wait for the first hello is not a complaint.
	if level == 0 && !strings.HasPrefix(message, "Waiting for suitable server") {
		c.add(message, values)
	}
}

func (c *complaints) Error(err error, message string, values ...any) {
	c.add(fmt.Sprintf("%s: %v", message, err), values)
}

func (c *complaints) add(message string, values []any) {
	c.Lock()
	defer c.Unlock()
	c.lines = append(c.lines, fmt.Sprint(message, values))
}

// connect opens a client whose complaints fail the test, and an empty database.
func connect(t *testing.T, monitor *event.CommandMonitor) (context.Context, *mongo.Database) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	log := &complaints{}
	settings := options.Client().
		ApplyURI(os.Getenv("VELLUM_URI")).
		SetServerSelectionTimeout(5 * time.Second).
		SetMonitor(monitor).
		SetLoggerOptions(options.Logger().SetSink(log).
			SetComponentLevel(options.LogComponentAll, options.LogLevelInfo))
	client, err := mongo.Connect(settings)
	must(t, err)
	name := "go_" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))
	database := client.Database(name)
	must(t, database.Drop(ctx))
	t.Cleanup(func() {
		must(t, database.Drop(ctx))
		must(t, client.Disconnect(ctx))
		cancel()
		if len(log.lines) > 0 {
			t.Errorf("the driver complains: %v", log.lines)
		}
	})
	return ctx, database
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Fatalf("got %#v, want %#v", got, want)
	}
}

func isReplicaSet() bool { return os.Getenv("VELLUM_TOPOLOGY") == "replset" }

func seeded(t *testing.T) (context.Context, *mongo.Collection) {
	t.Helper()
	ctx, database := connect(t, nil)
	people := database.Collection("people")
	_, err := people.InsertMany(ctx, composers)
	must(t, err)
	return ctx, people
}

func TestPingAndHello(t *testing.T) {
	ctx, database := connect(t, nil)
	must(t, database.Client().Ping(ctx, nil))
	var hello struct {
		SetName           string `bson:"setName"`
		IsWritablePrimary bool   `bson:"isWritablePrimary"`
	}
	must(t, database.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
	equal(t, hello.IsWritablePrimary, true)
	equal(t, hello.SetName != "", isReplicaSet())
}

func TestFindInBatches(t *testing.T) {
	ctx, people := seeded(t)
	cursor, err := people.Find(ctx, bson.D{{Key: "born", Value: bson.D{{Key: "$gt", Value: 1800}}}},
		options.Find().SetSort(bson.D{{Key: "born", Value: -1}}).SetBatchSize(1))
	must(t, err)
	var found []person
	must(t, cursor.All(ctx, &found))
	equal(t, found, []person{composers[2], composers[0], composers[1]})
	err = people.FindOne(ctx, bson.D{{Key: "_id", Value: 99}}).Err()
	equal(t, errors.Is(err, mongo.ErrNoDocuments), true)
}

func TestUpdateAndDelete(t *testing.T) {
	ctx, people := seeded(t)
	one := bson.D{{Key: "_id", Value: 1}}
	updated, err := people.UpdateOne(ctx, one, bson.D{{Key: "$inc", Value: bson.D{{Key: "born", Value: 1}}}})
	must(t, err)
	equal(t, []int64{updated.MatchedCount, updated.ModifiedCount}, []int64{1, 1})
	var after person
	must(t, people.FindOneAndUpdate(ctx, one, bson.D{{Key: "$push", Value: bson.D{{Key: "works", Value: "Lied"}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&after))
	equal(t, after, person{1, "Clara", 1820, []string{"Trio", "Konzert", "Lied"}})
	upserted, err := people.ReplaceOne(ctx, bson.D{{Key: "_id", Value: 7}}, bson.D{{Key: "name", Value: "Lili"}},
		options.Replace().SetUpsert(true))
	must(t, err)
	equal(t, upserted.UpsertedID, int32(7))
	deleted, err := people.DeleteMany(ctx, bson.D{{Key: "born", Value: bson.D{{Key: "$exists", Value: true}}}})
	must(t, err)
	equal(t, deleted.DeletedCount, int64(3))
	count, err := people.CountDocuments(ctx, bson.D{})
	must(t, err)
	equal(t, count, int64(1))
}

func TestUniqueIndex(t *testing.T) {
	ctx, people := seeded(t)
	name, err := people.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys: bson.D{{Key: "name", Value: 1}}, Options: options.Index().SetUnique(true)})
	must(t, err)
	equal(t, name, "name_1")
	_, err = people.InsertOne(ctx, person{ID: 9, Name: "Amy"})
	equal(t, mongo.IsDuplicateKeyError(err), true)
	listed, err := people.Indexes().ListSpecifications(ctx)
	must(t, err)
	equal(t, len(listed), 2)
	must(t, people.Indexes().DropOne(ctx, "name_1"))
}

func TestAggregate(t *testing.T) {
	ctx, people := seeded(t)
	cursor, err := people.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$unwind", Value: "$works"}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$name"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
		{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
	})
	must(t, err)
	var rows []struct {
		ID string `bson:"_id"`
		N  int32  `bson:"n"`
	}
	must(t, cursor.All(ctx, &rows))
	equal(t, fmt.Sprint(rows), "[{Clara 2} {Fanny 1}]")
}

func TestBulkWrites(t *testing.T) {
	ctx, people := seeded(t)
	result, err := people.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(person{ID: 4, Name: "Lili", Born: 1893}),
		mongo.NewUpdateManyModel().SetFilter(bson.D{}).SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "seen", Value: true}}}}),
		mongo.NewDeleteOneModel().SetFilter(bson.D{{Key: "_id", Value: 3}}),
	})
	must(t, err)
	equal(t, []int64{result.InsertedCount, result.ModifiedCount, result.DeletedCount}, []int64{1, 4, 1})
	_, err = people.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(person{ID: 4}), mongo.NewInsertOneModel().SetDocument(person{ID: 5}),
	}, options.BulkWrite().SetOrdered(false))
	var failure mongo.BulkWriteException
	equal(t, errors.As(err, &failure), true)
	equal(t, []int{failure.WriteErrors[0].Index, failure.WriteErrors[0].Code}, []int{0, 11000})
}

func TestClientBulkWrite(t *testing.T) {
	ctx, people := seeded(t)
	database := people.Database().Name()
	result, err := people.Database().Client().BulkWrite(ctx, []mongo.ClientBulkWrite{
		{Database: database, Collection: "people",
			Model: mongo.NewClientInsertOneModel().SetDocument(person{ID: 8, Name: "Nadia", Born: 1887})},
		{Database: database, Collection: "other",
			Model: mongo.NewClientInsertOneModel().SetDocument(bson.D{{Key: "_id", Value: 1}})},
		{Database: database, Collection: "people",
			Model: mongo.NewClientDeleteOneModel().SetFilter(bson.D{{Key: "_id", Value: 1}})},
	})
	must(t, err)
	equal(t, []int64{result.InsertedCount, result.DeletedCount}, []int64{2, 1})
}

func TestRetryableWritesCarryTransactionNumbers(t *testing.T) {
	if !isReplicaSet() {
		t.Skip("a standalone server has no retryable writes")
	}
	var numbered int
	ctx, database := connect(t, &event.CommandMonitor{Started: func(_ context.Context, started *event.CommandStartedEvent) {
		if _, err := started.Command.LookupErr("txnNumber"); err == nil && started.CommandName == "insert" {
			numbered++
		}
	}})
	_, err := database.Collection("c").InsertOne(ctx, bson.D{{Key: "_id", Value: 1}})
	must(t, err)
	equal(t, numbered, 1)
}

func TestSessionReadsItsWrites(t *testing.T) {
	ctx, people := seeded(t)
	must(t, people.Database().Client().UseSession(ctx, func(session context.Context) error {
		if _, err := people.InsertOne(session, person{ID: 6, Name: "Ethel"}); err != nil {
			return err
		}
		return people.FindOne(session, bson.D{{Key: "_id", Value: 6}}).Err()
	}))
}

func TestUnknownCommand(t *testing.T) {
	ctx, database := connect(t, nil)
	err := database.RunCommand(ctx, bson.D{{Key: "noSuchCommandAtAll", Value: 1}}).Err()
	var failure mongo.CommandError
	equal(t, errors.As(err, &failure), true)
	equal(t, []any{failure.Code, failure.Name}, []any{int32(59), "CommandNotFound"})
}
