package vellumtest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var built atomic.Int64

func fill(ctx context.Context, db *mongo.Database) error {
	built.Add(1)
	_, err := db.Collection("people").InsertMany(ctx, []any{bson.D{{Key: "name", Value: "a"}}, bson.D{{Key: "name", Value: "b"}}})
	return err
}

func count(t testing.TB, db *mongo.Database) int64 {
	t.Helper()
	found, err := db.Collection("people").CountDocuments(context.Background(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// responds returns true if a server runs at uri. On a busy machine, its reply may take long.
func responds(uri string) bool {
	return respondsWithin(uri, 10*time.Second)
}

func respondsWithin(uri string, limit time.Duration) bool {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(limit))
	if err != nil {
		return false
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	return client.Ping(context.Background(), nil) == nil
}

func ends(uri string) bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if !respondsWithin(uri, 300*time.Millisecond) {
			return true
		}
	}
	return false
}

func TestEachTestForksTheTemplate(t *testing.T) {
	t.Run("group", func(t *testing.T) {
		for number := range 8 {
			t.Run(fmt.Sprint(number), func(t *testing.T) {
				t.Parallel()
				db := Fork(t, fill)
				if _, err := db.Collection("people").InsertOne(context.Background(), bson.D{}); err != nil {
					t.Fatal(err)
				}
				if found := count(t, db); found != 3 {
					t.Errorf("%d documents, expected 3", found)
				}
			})
		}
	})
	if built.Load() != 1 {
		t.Errorf("the template was built %d times", built.Load())
	}
}

func TestADatabaseIsEmptyAndIsDroppedAfterItsTest(t *testing.T) {
	var name string
	t.Run("inner", func(t *testing.T) {
		db := Database(t)
		name = db.Name()
		if err := fill(context.Background(), db); err != nil || count(t, db) != 2 {
			t.Fatal(err)
		}
	})
	names, err := Client(t).ListDatabaseNames(context.Background(), bson.D{{Key: "name", Value: name}})
	if err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestSnapshotsAndResets(t *testing.T) {
	db := Fork(t, fill)
	Snapshot(t, db, "ready")
	Reset(t, db)
	if count(t, db) != 0 {
		t.Error("not empty after the reset")
	}
	if changes := Changes(t, db, "ready"); len(changes) != 2 || changes[0]["operationType"] != "delete" {
		t.Errorf("not two deletions: %v", changes)
	}
	Restore(t, db, "ready")
	if count(t, db) != 2 || len(Changes(t, db, "ready")) != 0 {
		t.Error("not restored")
	}
}

func TestAFailedStartReturnsTheServersError(t *testing.T) {
	if _, err := Start("--prot", "1"); err == nil || !strings.Contains(err.Error(), "--prot") {
		t.Error(err)
	}
}

func TestSettingsOfAnotherServerInTheEnvironmentHaveNoEffect(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	t.Setenv("MONGO_INITDB_ROOT_USERNAME", "root")
	t.Setenv("MONGO_INITDB_ROOT_PASSWORD_FILE", "/nowhere")
	t.Setenv("VELLUM_DATA", data)
	t.Setenv("VELLUM_POSTGRES", "host=nowhere.invalid")
	for _, user := range []*url.Userinfo{nil, url.UserPassword("mine", "secret")} {
		server, err := StartAs(user)
		if err != nil {
			t.Fatal(err)
		}
		client, err := mongo.Connect(options.Client().ApplyURI(server.URI))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Database("test").Collection("c").InsertOne(t.Context(), bson.D{}); err != nil {
			t.Error(err)
		}
		_ = client.Disconnect(t.Context())
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("the data is in the directory of another server")
	}
}

// script writes an executable shell script.
func script(t *testing.T, path, text string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a shell script")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestAProgramThatIsNoServerIsEnded(t *testing.T) {
	program := filepath.Join(t.TempDir(), "other")
	script(t, program, "#!/bin/sh\necho hello\nsleep 60\n")
	t.Setenv("VELLUM_BINARY", program)
	if _, err := Start(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
	}
}

func TestTheProgramIsUnpackedIntoAnOwnFolder(t *testing.T) {
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	if _, err := writer.Write([]byte("mine")); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	embedded = compressed.Bytes()
	defer func() { embedded = nil }()
	shared := t.TempDir()
	t.Setenv("TMPDIR", shared)
	sum := sha256.Sum256(embedded)
	script(t, filepath.Join(shared, "vellum", hex.EncodeToString(sum[:8]), "vellum"), "of another user")
	// First the cache is a file, then it is unknown.
	notAFolder := filepath.Join(shared, "file")
	script(t, notAFolder, "")
	for _, home := range []string{notAFolder, ""} {
		t.Setenv("XDG_CACHE_HOME", home)
		t.Setenv("HOME", home)
		program, err := unpackEmbedded()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(program)
		if err != nil || string(text) != "mine" || !strings.HasPrefix(program, filepath.Join(shared, "vellum-program-")) {
			t.Errorf("%s: %q, %v", program, text, err)
		}
	}
}

func TestTheServerStops(t *testing.T) {
	server, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	if !responds(server.URI) {
		t.Error("no answer")
	}
	if err := server.Stop(); err != nil || !ends(server.URI) {
		t.Error(err)
	}
}

func TestGarbageCollectionDoesNotEndTheServer(t *testing.T) {
	uri := URI(t)
	for range 5 {
		runtime.GC()
		// Another goroutine runs the finalizers of collected objects.
		time.Sleep(20 * time.Millisecond)
	}
	if !responds(uri) {
		t.Error("the server has ended")
	}
}

// TestHolder is a process for the next test: it holds a server until it is killed.
func TestHolder(t *testing.T) {
	if os.Getenv("VELLUMTEST_HOLD") == "" {
		t.Skip("run by TestTheServerEndsWithAKilledParent")
	}
	fmt.Println(URI(t))
	time.Sleep(time.Minute)
}

func TestTheServerEndsWithAKilledParent(t *testing.T) {
	holder := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	holder.Env = append(os.Environ(), "VELLUMTEST_HOLD=1")
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	uri := strings.TrimSpace(line)
	if !responds(uri) {
		t.Error("no answer")
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	if !ends(uri) {
		t.Error("the server outlived its parent")
	}
}

func TestAUserRequiresLogin(t *testing.T) {
	server, err := StartAs(url.UserPassword("root", "p@ss: /+word"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	_, rest, _ := strings.Cut(server.URI, "@")
	for uri, allowed := range map[string]bool{server.URI: true, "mongodb://" + rest: false} {
		client, err := mongo.Connect(options.Client().ApplyURI(uri))
		if err != nil {
			t.Fatal(err)
		}
		err = client.Database("test").RunCommand(t.Context(), bson.D{{Key: "count", Value: "c"}}).Err()
		if (err == nil) != allowed {
			t.Errorf("%s: %v", uri, err)
		}
		_ = client.Disconnect(t.Context())
	}
}

func TestTLS(t *testing.T) {
	certificate := "../../crates/wire/tests/fixtures/plain.pem"
	server, err := start(nil, "tlsCAFile="+certificate, []string{"--tls-mode", "require", "--tls-certificate-key-file", certificate})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(t.Context()) }()
	if err := client.Ping(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
