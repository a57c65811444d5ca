// FerretDB as a peer to measure beside: its own package, embedded, with the SQLite handler or PostgreSQL's.
//
//	ferretdb DIR
//	ferretdb postgres://…
//
// keeps its files in DIR, or its tables in that database, listens on a free loopback port, prints the connection string, and
// ends with its standard input. FerretDB's own command can't be installed by itself: its go.mod replaces modules.
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
		log.Fatal("say where to keep the files: ferretdb DIR")
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
