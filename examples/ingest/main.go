// Command ingest takes analytics events over HTTP, answers at once and writes them later, many at a
// time.
//
//	go run ./examples/ingest --file events.jsonl
//	curl -i -d '{"user":"ann","did":"open"}' localhost:8080/events
//	printf '{"n":1}\n{"n":2}\n' | curl -i --data-binary @- localhost:8080/events
//	curl localhost:8080/stats
//	cat events.jsonl
//
// A request is answered with 202 when its events are in a bounded queue, and with 503 and
// Retry-After when the queue is full. So memory stays bounded with any disk. After SIGTERM or
// Ctrl-C, running requests end and the queue drains. So all events answered with 202 are in the
// file when the program has ended. The queue is in memory: a power cut loses what it holds.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

// drainTimeout is how long requests that have begun, and then the queue, may take once the program
// is told to end.
const drainTimeout = 30 * time.Second

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	name := flag.String("file", "events.jsonl", "file to append events to, one in a line")
	limit := flag.Int("limit", 100_000, "most events that wait to be written")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *name, *limit); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, and returns when everything accepted is written.
func run(ctx context.Context, addr, name string, limit int) error {
	file, err := openLines(name)
	if err != nil {
		return err
	}
	pool := workers.New(workers.Config{})
	in := newIngest(pool, file.append, limit)
	s := &web.Server{Handler: in.routes(), ReadTimeout: time.Minute}
	ln, err := s.Listen("tcp", addr)
	if err != nil {
		return errors.Join(err, file.close())
	}
	log.Print("listening on ", ln.Addr())
	<-ctx.Done()

	// The order is: the server that accepts events, the queue that holds them, the pool that writes
	// them, and the file.
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return errors.Join(s.Shutdown(ctx), in.queue.Close(ctx), pool.Close(ctx), file.close())
}
