// A Pub/Sub server in memory, for tests.
package main

import (
	"flag"
	"log"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	port := flag.Int("port", 0, "the port on loopback to listen on")
	flag.Parse()
	server := pstest.NewServerWithPort(*port)
	log.Printf("listening on %s", server.Addr)
	select {}
}
