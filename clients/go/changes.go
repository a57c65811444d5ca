package vellumtest

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Changes are the changes of a database since a snapshot of it, in the form of change events. Tests compare
// them with the expected changes.
func Changes(t testing.TB, db *mongo.Database, name string) []bson.M {
	t.Helper()
	var changes []bson.M
	difference(t, db, name, &changes)
	return changes
}

// Approve compares the changes since a snapshot with testdata/TEST.approved.json. It writes the file if it is
// missing (except in CI), or if the variable VELLUM_APPROVE is set.
func Approve(t testing.TB, db *mongo.Database, name string) {
	t.Helper()
	clean := regexp.MustCompile(`[^\w.-]+`).ReplaceAllString(t.Name(), "_")
	ApproveFile(t, db, name, filepath.Join("testdata", clean+".approved.json"))
}

// ApproveFile is Approve with another file.
func ApproveFile(t testing.TB, db *mongo.Database, name, file string) {
	t.Helper()
	var changes []bson.D
	difference(t, db, name, &changes)
	changed := text(changes)
	approved, err := os.ReadFile(file)
	missing := os.IsNotExist(err)
	if os.Getenv("VELLUM_APPROVE") != "" || missing && os.Getenv("CI") == "" {
		err = os.MkdirAll(filepath.Dir(file), 0o777)
		if err == nil {
			err = os.WriteFile(file, []byte(changed), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil && !missing {
		t.Fatal(err)
	}
	if before := strings.ReplaceAll(string(approved), "\r\n", "\n"); before != changed {
		t.Errorf("the changes differ from %s; VELLUM_APPROVE=1 writes the file:\n%s", file, lineDifference(before, changed))
	}
}

func difference(t testing.TB, db *mongo.Database, name string, changes any) {
	t.Helper()
	ctx := context.Background()
	command := bson.D{{Key: "diffDatabase", Value: db.Name()}, {Key: "since", Value: name}}
	cursor, err := db.Client().Database("admin").RunCommandCursor(ctx, command)
	if err == nil {
		err = cursor.All(ctx, changes)
	}
	if err != nil {
		t.Fatalf("diffDatabase: %v", err)
	}
}
