package vellumtest

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// unsetWriteVariables unsets the variables that control the writing of files.
func unsetWriteVariables(t *testing.T) {
	t.Setenv("CI", "")
	t.Setenv("VELLUM_APPROVE", "")
}

func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

func people(ctx context.Context, db *mongo.Database) error {
	_, err := db.Collection("people").InsertMany(ctx, []any{
		bson.D{{Key: "_id", Value: 1}, {Key: "name", Value: "Ada"}, {Key: "born", Value: 1815}, {Key: "x", Value: 1}},
		bson.D{{Key: "_id", Value: 2}, {Key: "name", Value: "Grace"}},
	})
	return err
}

func TestTheFileIsTheSameInAllLanguages(t *testing.T) {
	unsetWriteVariables(t)
	ctx := t.Context()
	db := Fork(t, people)
	Snapshot(t, db, "ready")
	people, orders := db.Collection("people"), db.Collection("orders")
	must(people.UpdateByID(ctx, 1, bson.M{"$set": bson.M{"born": int64(1816)}, "$unset": bson.M{"x": 1, "name": 1}}))
	must(people.DeleteOne(ctx, bson.M{"_id": 2}))
	keys := bson.D{{Key: "name", Value: 1}, {Key: "born", Value: -1}}
	must(people.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: options.Index().SetUnique(true)}))
	by, at := bson.NewObjectID(), time.Now()
	// Their order differs from the order of their random keys.
	for _, number := range []int{2, 1} {
		key := make([]byte, 16)
		must(rand.Read(key))
		must(orders.InsertOne(ctx, bson.M{"_id": bson.Binary{Subtype: bson.TypeBinaryUUID, Data: key}, "number": number, "by": by, "at": at}))
	}
	list := bson.A{true, nil, bson.M{"d": "é \"<&>\n", "c": bson.A{}}}
	must(orders.InsertOne(ctx, bson.M{"_id": "z", "b": 1.5, "a": list, "by": by, "next": bson.NewObjectID()}))
	ApproveFile(t, db, "ready", "../changes.approved.json")
}

func TestAnApprovedFileIsNamedAfterItsTest(t *testing.T) {
	unsetWriteVariables(t)
	db := Fork(t, people)
	Snapshot(t, db, "ready")
	must(db.Collection("people").InsertOne(t.Context(), bson.M{"name": "Edith"}))
	Approve(t, db, "ready")
}

// failing records the failure messages of a test.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Errorf(format string, arguments ...any) {
	f.message = strings.TrimSpace(strings.Split(format, ":")[0])
	for _, argument := range arguments {
		f.message += "\n" + argument.(string)
	}
}

func TestApproveFileWritesAMissingFileAndFailsOnDifferences(t *testing.T) {
	unsetWriteVariables(t)
	db := Fork(t, people)
	Snapshot(t, db, "ready")
	file := filepath.Join(t.TempDir(), "approved", "one.json")
	approve := func() string {
		test := &failing{TB: t}
		ApproveFile(test, db, "ready", file)
		return test.message
	}
	change := func(n int) {
		must(db.Collection("people").UpdateByID(t.Context(), 1, bson.M{"$set": bson.M{"n": n}}))
	}
	change(1)
	t.Setenv("CI", "true")
	if _, err := os.Stat(file); approve() == "" || !os.IsNotExist(err) {
		t.Error("written in CI", err)
	}
	t.Setenv("CI", "")
	for range 2 {
		if message := approve(); message != "" {
			t.Error(message)
		}
	}
	change(2)
	message := approve()
	for _, part := range []string{"VELLUM_APPROVE=1 writes the file", "\n- ", `"n": 1`, "\n+ ", `"n": 2`} {
		if !strings.Contains(message, part) {
			t.Errorf("%q lacks %q", message, part)
		}
	}
	t.Setenv("VELLUM_APPROVE", "1")
	approve()
	t.Setenv("VELLUM_APPROVE", "")
	if message := approve(); message != "" {
		t.Error(message)
	}
}

func TestLineDifferenceHasContext(t *testing.T) {
	same := "a\nb\nc\nd\ne\n"
	found := lineDifference(same+"x\n"+same+same, same+"y\nz\n"+same+same+"end\n")
	if expected := "  …\n  c\n  d\n  e\n- x\n+ y\n+ z\n  a\n  b\n  c\n  …\n  c\n  d\n  e\n+ end"; found != expected {
		t.Errorf("%q", found)
	}
}
