// Measures what TLS costs a server: findOne over TLS beside findOne in the clear, and a thousand connections opened at
// once, each with its first hello.
//
//	go run . -binary ../../target/release/vellum [-operations 40000] [-connections 1000]
//	go run . -binary ../../target/release/vellum -logins 200
//
// The second measures what logging in costs, see logins.go.
//
// It makes a certificate (ECDSA P-256), starts a server for each way to connect, and lets the ways take turns, so that
// a busy minute of the machine falls on all. CPU (user + system) of the server's process is the figure to compare:
// throughput on a shared machine is noise.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// ticks is the kernel's clock rate for /proc/PID/stat.
const ticks = 100

var (
	program     = flag.String("binary", "", "the server's program")
	operations  = flag.Int("operations", 40_000, "findOnes of each round")
	workers     = flag.Int("workers", 8, "connections that find at a time")
	rounds      = flag.Int("rounds", 5, "how often the ways take turns")
	connections = flag.Int("connections", 1000, "connections opened at once")
	logins      = flag.Int("logins", 0, "measure logging in, with so many clients in each round")
)

// A way to connect, and a server for it.
type way struct {
	name   string
	config *tls.Config
	// How the server's user logs in, if it has one.
	mechanism string

	uri    string
	host   string
	cmd    *exec.Cmd
	stdin  io.Closer
	client *mongo.Client
	perOp  []float64
	perOne []float64
	took   []float64
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// certificate writes a file of certificate and key, good for the loopback address.
func certificate(path string) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour * 1000),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	var text bytes.Buffer
	check(pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der}))
	check(pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))}))
	check(os.WriteFile(path, text.Bytes(), 0o600))
}

func (w *way) start(file string) {
	args := []string{"serve", "--port", "0", "--parent-pipe"}
	if w.config != nil {
		args = append(args, "--tls-mode", "require", "--tls-certificate-key-file", file)
	}
	if w.mechanism != "" {
		args = append(args, "--auth")
	}
	w.cmd = exec.Command(*program, args...)
	if w.mechanism != "" {
		w.cmd.Env = append(os.Environ(), "MONGO_INITDB_ROOT_USERNAME=root", "MONGO_INITDB_ROOT_PASSWORD=secret")
	}
	w.cmd.Stderr = io.Discard
	w.stdin = must(w.cmd.StdinPipe())
	output := must(w.cmd.StdoutPipe())
	check(w.cmd.Start())
	line := must(bufio.NewReader(output).ReadString('\n'))
	go func() { _, _ = io.Copy(io.Discard, output) }()
	w.uri = strings.TrimSpace(line)
	w.host = strings.Split(strings.TrimPrefix(w.uri, "mongodb://"), "/")[0]
	w.client = must(mongo.Connect(w.options().SetMaxPoolSize(uint64(*workers)).SetMinPoolSize(uint64(*workers))))
	_, err := w.client.Database("test").Collection("c").InsertOne(context.Background(), bson.D{{Key: "_id", Value: 1}, {Key: "text", Value: strings.Repeat("x", 460)}})
	check(err)
}

// options are a client's.
func (w *way) options() *options.ClientOptions {
	client := options.Client().ApplyURI(w.uri)
	if w.config != nil {
		client.SetTLSConfig(w.config)
	}
	if w.mechanism != "" {
		client.SetAuth(options.Credential{AuthMechanism: w.mechanism, Username: "root", Password: "secret"})
	}
	return client
}

func (w *way) stop() {
	_ = w.client.Disconnect(context.Background())
	_ = w.stdin.Close()
	_ = w.cmd.Wait()
}

// cpu is the server's time so far, in microseconds.
func (w *way) cpu() float64 {
	text := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.cmd.Process.Pid))))
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+2:])
	user, system := must(strconv.ParseFloat(fields[11], 64)), must(strconv.ParseFloat(fields[12], 64))
	return (user + system) * 1e6 / ticks
}

// find has every worker find the document so often, and notes the server's CPU for each.
func (w *way) find(count int) float64 {
	collection := w.client.Database("test").Collection("c")
	before := w.cpu()
	var all sync.WaitGroup
	for range *workers {
		all.Go(func() {
			for range count / *workers {
				check(collection.FindOne(context.Background(), bson.D{{Key: "_id", Value: 1}}).Err())
			}
		})
	}
	all.Wait()
	return (w.cpu() - before) / float64(count)
}

// open connects so often at once, says hello on each, and closes all once the last has its answer.
func (w *way) open() (perOne, took float64) {
	body := must(bson.Marshal(bson.D{{Key: "hello", Value: 1}, {Key: "$db", Value: "admin"}}))
	message := binary.LittleEndian.AppendUint32(nil, uint32(21+len(body)))
	for _, word := range []uint32{1, 0, 2013, 0} {
		message = binary.LittleEndian.AppendUint32(message, word)
	}
	message = append(append(message, 0), body...)
	before, began := w.cpu(), time.Now()
	open := make([]net.Conn, *connections)
	var all sync.WaitGroup
	for at := range open {
		all.Go(func() {
			if w.config == nil {
				open[at] = must(net.Dial("tcp", w.host))
			} else {
				open[at] = must(tls.Dial("tcp", w.host, w.config))
			}
			_, err := open[at].Write(message)
			check(err)
			must(io.ReadFull(open[at], make([]byte, 21)))
		})
	}
	all.Wait()
	took = float64(time.Since(began).Microseconds()) / 1000
	perOne = (w.cpu() - before) / float64(*connections)
	for _, connection := range open {
		check(connection.Close())
	}
	return perOne, took
}

func median(figures []float64) float64 {
	slices.Sort(figures)
	return figures[len(figures)/2]
}

func main() {
	flag.Parse()
	folder := must(os.MkdirTemp("", "vellum-tls-"))
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, "server.pem")
	certificate(file)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must(os.ReadFile(file)))
	with := func(version uint16) *tls.Config {
		return &tls.Config{RootCAs: trusted, MinVersion: version, MaxVersion: version}
	}
	if *logins > 0 {
		measureLogins(file, with(tls.VersionTLS13))
		return
	}
	ways := []*way{
		{name: "in the clear"},
		{name: "TLS 1.3", config: with(tls.VersionTLS13)},
		{name: "TLS 1.2", config: with(tls.VersionTLS12)},
	}
	for _, w := range ways {
		w.start(file)
		w.find(*operations / 4)
		w.open()
	}
	for range *rounds {
		for _, w := range ways {
			w.perOp = append(w.perOp, w.find(*operations))
			perOne, took := w.open()
			w.perOne, w.took = append(w.perOne, perOne), append(w.took, took)
		}
	}
	fmt.Println("| | findOne, CPU of the server | beside in the clear | a new connection, CPU of the server | 1,000 at once |")
	fmt.Println("|---|---|---|---|---|")
	plain := median(ways[0].perOp)
	for _, w := range ways {
		fmt.Printf("| %s | %.1f µs | %.2f | %.0f µs | %.0f ms |\n",
			w.name, median(w.perOp), median(w.perOp)/plain, median(w.perOne), median(w.took))
		w.stop()
	}
}
