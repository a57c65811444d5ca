// FerretDB as a target of measurements: its Go package, embedded, with the SQLite handler or the PostgreSQL handler.
//
//	ferretdb DIR               files in DIR
//	ferretdb postgres://…      tables in this database
//
// The program listens on a free loopback port, prints the connection string, and ends with its standard input. `go install`
// cannot install FerretDB's own command, because its go.mod replaces modules.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: ferretdb DIR or ferretdb postgres://…")
	}
	config := ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Handler:   "sqlite",
		SQLiteURL: "file:" + os.Args[1] + "/",
	}
	if strings.HasPrefix(os.Args[1], "postgres://") {
		config.Handler, config.PostgreSQLURL, config.SQLiteURL = "postgresql", os.Args[1], ""
	}
	server, err := ferretdb.New(&config)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(server.Run(context.Background())) }()
	fmt.Println(server.MongoDBURI())
	io.Copy(io.Discard, os.Stdin)
}
