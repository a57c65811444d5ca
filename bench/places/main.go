// Measures places and texts on several servers in one run, through the official Go driver: builds of each kind of
// index, what is near among 1,000,000 points, what lies within a polygon, searches of 100,000 documents of 1 KB.
//
//	VELLUM=path/to/vellum LEVELS= PEERS=mongo-java-server ../peers/start go run .
//	go run . -target vellum=mongodb://127.0.0.1:27017/ [-target other=URI] [-points 1000000] [-texts 100000] [-only words]
//
// The servers take turns at each work. For each it prints the median time of an operation as the client sees it, the
// CPU time (user + system) of the server process for each, and how many times the first server's that is; the machine
// is shared, so the ratios are what to trust. A server that refuses a work is told with its words, and one that finds
// another number of documents than the first with that number.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// ticks is the kernel's clock rate for /proc/PID/stat.
const ticks = 100

// enough is how long one work may take on one server before it is left at what has been done.
const enough = 20 * time.Second

type target struct {
	name string
	db   *mongo.Database
	pid  int
}

// A work is done so many times, with the number of each; it tells how many documents it has found.
type work struct {
	name  string
	times int
	run   func(context.Context, *mongo.Database, int) (int, error)
}

type targets []target

func (t *targets) String() string { return "" }

func (t *targets) Set(text string) error {
	name, uri, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("a target is NAME=URI")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMaxPoolSize(2).SetTimeout(10 * time.Minute))
	if err != nil {
		return err
	}
	pid, err := listener(uri)
	if err != nil {
		return err
	}
	*t = append(*t, target{name, client.Database("bench"), pid})
	return nil
}

// listener finds the process that listens at a loopback address.
func listener(uri string) (int, error) {
	_, behind, _ := strings.Cut(strings.TrimPrefix(uri, "mongodb://"), ":")
	port, err := strconv.Atoi(strings.TrimRight(behind, "/"))
	if err != nil {
		return 0, fmt.Errorf("%s names no port: %w", uri, err)
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(text), "\n") {
			fields := strings.Fields(line)
			const listening = "0A"
			if len(fields) < 10 || fields[3] != listening || !strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
				continue
			}
			if pid := owner("socket:[" + fields[9] + "]"); pid != 0 {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("nobody here listens at %s", uri)
}

// owner finds the process that has a socket open.
func owner(socket string) int {
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, descriptor := range descriptors {
		if link, err := os.Readlink(descriptor); err == nil && link == socket {
			pid, _ := strconv.Atoi(strings.Split(descriptor, "/")[2])
			return pid
		}
	}
	return 0
}

// cpu is a process' time so far, in milliseconds.
func cpu(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		log.Fatalf("reading a server's CPU time: %v", err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) * 1e3 / ticks
}

// place is the same for a number on every server: anywhere on the sphere, as many in each square mile.
func place(seed, number int) [2]float64 {
	random := rand.New(rand.NewPCG(uint64(seed), uint64(number)))
	return [2]float64{random.Float64()*360 - 180, math.Asin(random.Float64()*2-1) * 180 / math.Pi}
}

func point(at [2]float64) bson.D {
	return bson.D{{Key: "type", Value: "Point"}, {Key: "coordinates", Value: at}}
}

// square is a polygon of so many degrees about a place that is far from poles and the antimeridian.
func square(number int, size float64) bson.D {
	at := place(3, number)
	x, y := at[0]*0.9, at[1]*0.7
	ring := bson.A{bson.A{x - size, y - size}, bson.A{x + size, y - size}, bson.A{x + size, y + size},
		bson.A{x - size, y + size}, bson.A{x - size, y - size}}
	return bson.D{{Key: "type", Value: "Polygon"}, {Key: "coordinates", Value: bson.A{ring}}}
}

// word is one of 50,000, the first far more often than the last, as in what people write.
func word(random *rand.Rand) string {
	number := int(math.Exp(random.Float64()*math.Log(50_000))) - 1
	endings := []string{"", "s", "ing", "ed", "ation"}
	syllables := []string{"ka", "lo", "mir", "ten", "su", "val", "dor", "pe", "rin", "go", "bas", "tul", "ne", "fi", "cra", "shy"}
	text := ""
	for rest := number/len(endings) + 16; rest > 0; rest /= 16 {
		text += syllables[rest%16]
	}
	return text + endings[number%len(endings)]
}

// text has a kilobyte; every thousandth document has the rare word.
func text(number int) string {
	random := rand.New(rand.NewPCG(7, uint64(number)))
	var out strings.Builder
	if number%1000 == 0 {
		out.WriteString("quetzal ")
	}
	for out.Len() < 1000 {
		out.WriteString(word(random))
		out.WriteByte(' ')
	}
	return out.String()
}

func fill(ctx context.Context, c *mongo.Collection, count int, document func(int) bson.D) (int, error) {
	if err := c.Drop(ctx); err != nil {
		return 0, err
	}
	for start := 0; start < count; start += 5_000 {
		batch := make([]any, 0, 5_000)
		for id := start; id < min(start+5_000, count); id++ {
			batch = append(batch, document(id))
		}
		if _, err := c.InsertMany(ctx, batch); err != nil {
			return 0, err
		}
	}
	return count, nil
}

func create(c string, key ...bson.E) func(context.Context, *mongo.Database, int) (int, error) {
	return func(ctx context.Context, db *mongo.Database, _ int) (int, error) {
		_, err := db.Collection(c).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D(key)})
		return 1, err
	}
}

// find reads all that a filter finds.
func find(c string, filter func(int) bson.D, option *options.FindOptionsBuilder) func(context.Context, *mongo.Database, int) (int, error) {
	return func(ctx context.Context, db *mongo.Database, number int) (int, error) {
		cursor, err := db.Collection(c).Find(ctx, filter(number), option)
		if err != nil {
			return 0, err
		}
		var found []bson.Raw
		err = cursor.All(ctx, &found)
		return len(found), err
	}
}

func field(name string, value any) bson.D { return bson.D{{Key: name, Value: value}} }

func search(words string) func(int) bson.D {
	return func(int) bson.D { return field("$text", field("$search", words)) }
}

func works(points, texts int) []work {
	ten := func() *options.FindOptionsBuilder { return options.Find().SetLimit(10) }
	near := func(number int) bson.D {
		return field("geo", field("$near", field("$geometry", point(place(2, number)))))
	}
	ring := func(number int) bson.D {
		return field("geo", field("$near", bson.D{{Key: "$geometry", Value: point(place(2, number))},
			{Key: "$minDistance", Value: 50_000.0}, {Key: "$maxDistance", Value: 100_000.0}}))
	}
	flat := func(number int) bson.D { return field("loc", field("$near", place(2, number))) }
	within := func(size float64) func(int) bson.D {
		return func(number int) bson.D { return field("geo", field("$geoWithin", field("$geometry", square(number, size)))) }
	}
	meets := func(number int) bson.D {
		return field("geo", field("$geoIntersects", field("$geometry", square(number, 1))))
	}
	box := func(number int) bson.D {
		at := place(3, number)
		x, y := at[0]*0.9, at[1]*0.7
		return field("loc", field("$geoWithin", field("$box", bson.A{bson.A{x - 1, y - 1}, bson.A{x + 1, y + 1}})))
	}
	score := field("score", field("$meta", "textScore"))
	best := func() *options.FindOptionsBuilder { return ten().SetSort(score).SetProjection(score) }
	return []work{
		{fmt.Sprintf("insert %d points (all)", points), 1, func(ctx context.Context, db *mongo.Database, _ int) (int, error) {
			return fill(ctx, db.Collection("points"), points, func(id int) bson.D {
				at := place(1, id)
				return bson.D{{Key: "_id", Value: id}, {Key: "geo", Value: point(at)}, {Key: "loc", Value: at}}
			})
		}},
		{"build the 2dsphere index", 1, create("points", bson.E{Key: "geo", Value: "2dsphere"})},
		{"build the 2d index", 1, create("points", bson.E{Key: "loc", Value: "2d"})},
		{"the 10 nearest, $near, 2dsphere", 2000, find("points", near, ten())},
		{"the 10 nearest, $near, 2d", 2000, find("points", flat, ten())},
		{"50 to 100 km away, $near, 2dsphere", 500, find("points", ring, options.Find())},
		{"$geoWithin a polygon of 2 degrees", 500, find("points", within(1), options.Find())},
		{"$geoWithin a polygon of 20 degrees", 50, find("points", within(10), options.Find())},
		{"$geoIntersects a polygon of 2 degrees", 500, find("points", meets, options.Find())},
		{"$geoWithin a $box of 2 degrees, 2d", 500, find("points", box, options.Find())},
		{fmt.Sprintf("insert %d texts of 1 KB (all)", texts), 1, func(ctx context.Context, db *mongo.Database, _ int) (int, error) {
			return fill(ctx, db.Collection("texts"), texts, func(id int) bson.D {
				return bson.D{{Key: "_id", Value: id}, {Key: "text", Value: text(id)}}
			})
		}},
		{"build the text index", 1, create("texts", bson.E{Key: "text", Value: "text"})},
		{"$text, a term in 0.1 % of documents", 500, find("texts", search("quetzal"), options.Find())},
		{"the same, the 10 best by textScore", 500, find("texts", search("quetzal"), best())},
		{"$text, two terms, the 10 best", 100, find("texts", search("quetzal shygobas"), best())},
		{"$text, a phrase in the rare documents", 500, find("texts", search("quetzal \"quetzal\""), options.Find())},
	}
}

// measured is what came of a work on one server.
type measured struct {
	middle, cpu float64
	done, found int
	refused     error
}

func measure(ctx context.Context, on target, work work) measured {
	var times []float64
	out := measured{}
	before, began := cpu(on.pid), time.Now()
	for number := range work.times {
		start := time.Now()
		found, err := work.run(ctx, on.db, number)
		if err != nil {
			return measured{refused: err}
		}
		out.found += found
		times = append(times, float64(time.Since(start).Microseconds())/1000)
		if time.Since(began) > enough {
			break
		}
	}
	slices.Sort(times)
	out.done = len(times)
	out.middle = times[len(times)/2]
	out.cpu = (cpu(on.pid) - before) / float64(out.done)
	return out
}

func ratio(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g×", a/b)
}

func main() {
	var all targets
	flag.Var(&all, "target", "NAME=URI of a server; may be given several times, the first is the measure")
	points := flag.Int("points", 1_000_000, "how many points")
	texts := flag.Int("texts", 100_000, "how many texts")
	only := flag.String("only", "", "works whose name contains this; what they need must be there")
	flag.Parse()
	if len(all) == 0 {
		log.Fatal("-target is missing")
	}
	ctx := context.Background()
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("%s, load %s\n\n", time.Now().Format("2006-01-02 15:04"), strings.TrimSpace(string(load)))
	fmt.Printf("| work | server | times | found | ms, median | CPU ms | time | CPU |\n|---|---|--:|--:|--:|--:|--:|--:|\n")
	for _, work := range works(*points, *texts) {
		if !strings.Contains(work.name, *only) {
			continue
		}
		var first measured
		for place, on := range all {
			found := measure(ctx, on, work)
			if place == 0 {
				first = found
			}
			if found.refused != nil {
				fmt.Printf("| %s | %s | | refused: %.100v | | | | |\n", work.name, on.name, found.refused)
				continue
			}
			each := float64(found.found) / float64(found.done)
			fmt.Printf("| %s | %s | %d | %.1f | %.3f | %.3f | %s | %s |\n", work.name, on.name, found.done, each,
				found.middle, found.cpu, ratio(found.middle, first.middle), ratio(found.cpu, first.cpu))
		}
	}
}
