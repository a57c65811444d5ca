// Measures what an insert costs the server while change streams wait on other collections, and what the oplog
// costs where nobody watches: CPU of the server for each insert, the insert's own time, and how soon its event comes.
//
//	go run . -vellum ../../target/release/vellum [-inserts 20000] [-rounds 3] [-data DIR]
//
// Each round starts a standalone and a replica set, in memory or in new folders of DIR. The figures are medians of
// the rounds; streams that are told of nothing should cost nothing, however many they are. Writes aren't retryable
// here, as only a set has those.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A measurement: what it is called, whether the server is a set, and how many streams wait.
type setting struct {
	name    string
	set     bool
	streams int
	// Whether the streams watch the collection that is inserted into.
	same bool
}

var settings = []setting{
	{"standalone", false, 0, false},
	{"set, no stream", true, 0, false},
	{"set, 1 stream elsewhere", true, 1, false},
	{"set, 100 streams elsewhere", true, 100, false},
	{"set, 1000 streams elsewhere", true, 1000, false},
	{"set, 1 stream on the collection", true, 1, true},
}

type figure struct{ cpuMicros, wallMicros float64 }

// How long after an insert's reply its event has come, in microseconds, of all rounds.
var wakeUps []float64

func main() {
	vellum := flag.String("vellum", "../../target/release/vellum", "the binary")
	inserts := flag.Int("inserts", 20_000, "inserts in each measurement")
	rounds := flag.Int("rounds", 3, "rounds, of which the median counts")
	data := flag.String("data", "", "a folder for data directories; none is memory")
	flag.Parse()
	figures := map[string][]figure{}
	for round := range *rounds {
		for number, setting := range settings {
			folder := ""
			if *data != "" {
				folder = filepath.Join(*data, fmt.Sprintf("%d-%d", round, number))
			}
			found, err := measure(*vellum, folder, setting, *inserts)
			if err != nil {
				log.Fatalf("%s: %v", setting.name, err)
			}
			figures[setting.name] = append(figures[setting.name], found)
		}
	}
	fmt.Printf("%-34s %14s %14s\n", "an insert", "CPU, µs", "time, µs")
	for _, setting := range settings {
		of := func(read func(figure) float64) float64 {
			values := []float64{}
			for _, found := range figures[setting.name] {
				values = append(values, read(found))
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		fmt.Printf("%-34s %14.1f %14.1f\n", setting.name,
			of(func(f figure) float64 { return f.cpuMicros }), of(func(f figure) float64 { return f.wallMicros }))
	}
	slices.Sort(wakeUps)
	if count := len(wakeUps); count > 0 {
		fmt.Printf("an event comes %.0f µs after the insert's reply (median; 99 of 100 within %.0f µs)\n",
			wakeUps[count/2], wakeUps[count*99/100])
	}
}

// measure starts a server, lets the streams wait, and inserts.
func measure(vellum, folder string, setting setting, inserts int) (figure, error) {
	arguments := []string{"serve", "--port", "0", "--parent-pipe"}
	if setting.set {
		arguments = append(arguments, "--replset", "rs0")
	}
	if folder != "" {
		arguments = append(arguments, "--data", folder)
	}
	server := exec.Command(vellum, arguments...)
	stdin, err := server.StdinPipe()
	if err != nil {
		return figure{}, err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return figure{}, err
	}
	if err := server.Start(); err != nil {
		return figure{}, err
	}
	defer func() {
		stdin.Close()
		server.Wait()
	}()
	uri := ""
	lines := bufio.NewScanner(stdout)
	for uri == "" && lines.Scan() {
		uri = strings.Trim(regexp.MustCompile(`mongodb://\S+`).FindString(lines.Text()), `".`)
	}
	go func() {
		for lines.Scan() {
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMaxPoolSize(0).SetRetryWrites(false))
	if err != nil {
		return figure{}, err
	}
	defer client.Disconnect(context.Background())
	collection := client.Database("bench").Collection("inserted")
	if _, err := collection.InsertOne(ctx, document(-1)); err != nil {
		return figure{}, err
	}
	watching, stop := context.WithCancel(ctx)
	arrived := make(chan time.Time, 2*inserts)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	for number := range setting.streams {
		watched := client.Database("bench").Collection(fmt.Sprintf("watched%d", number))
		if setting.same {
			watched = collection
		}
		stream, err := watched.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(5*time.Minute))
		if err != nil {
			return figure{}, err
		}
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			for stream.Next(watching) {
				if setting.same {
					arrived <- time.Now()
				}
			}
		}()
	}
	if err := allWait(ctx, client, setting.streams); err != nil {
		return figure{}, err
	}
	for number := range inserts / 10 {
		if _, err := collection.InsertOne(ctx, document(-number-2)); err != nil {
			return figure{}, err
		}
	}
	before, start := cpu(server.Process.Pid), time.Now()
	for number := range inserts {
		if _, err := collection.InsertOne(ctx, document(number)); err != nil {
			return figure{}, err
		}
	}
	used, took := cpu(server.Process.Pid)-before, time.Since(start)
	if setting.same {
		// The events of the inserts so far come first: they are taken as they come, or the stream would stand still.
		for range inserts + inserts/10 {
			<-arrived
		}
		for number := range 1000 {
			if _, err := collection.InsertOne(ctx, document(inserts+number)); err != nil {
				return figure{}, err
			}
			replied := time.Now()
			wakeUps = append(wakeUps, float64((<-arrived).Sub(replied).Nanoseconds())/1000)
			time.Sleep(time.Millisecond)
		}
	}
	each := func(total time.Duration) float64 { return float64(total.Nanoseconds()) / 1000 / float64(inserts) }
	return figure{each(used), each(took)}, nil
}

// A document of about 500 bytes.
func document(id int) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "text", Value: strings.Repeat("x", 460)}}
}

// allWait returns once so many getMores wait.
func allWait(ctx context.Context, client *mongo.Client, count int) error {
	for {
		var reply struct {
			Inprog []bson.Raw `bson:"inprog"`
		}
		filter := bson.D{{Key: "currentOp", Value: 1}, {Key: "command.getMore", Value: bson.D{{Key: "$exists", Value: true}}}}
		if err := client.Database("admin").RunCommand(ctx, filter).Decode(&reply); err != nil {
			return err
		}
		if len(reply.Inprog) >= count {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// cpu is the time that all threads of a process have run.
func cpu(pid int) time.Duration {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	var total time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue
		}
		nanos, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		total += time.Duration(nanos)
	}
	return total
}
