// Command upload takes files over HTTP, answers when they are on the disk, and looks into them
// later.
//
//	go run ./examples/upload --dir uploads
//	curl -i --data-binary @go.work localhost:8080/files      # 202, and where to ask: Location: /files/ID
//	curl localhost:8080/files/ID                             # waiting, then done with size and SHA-256
//	curl -O localhost:8080/files/ID/content
//
// A body streams to the disk as it comes, so a file of a gigabyte takes no more memory than one of
// a byte. What looks into files is bounded: when too many wait, uploads are answered with 503 and
// Retry-After before their body is read. Nothing that was answered with 202 is lost: after SIGTERM
// or Ctrl-C running work ends, and after a crash the program finds the unfinished files when it
// starts again.
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

// drainTimeout is how long uploads that have begun, and then the work on files, may take once the
// program is told to end.
const drainTimeout = time.Minute

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	dir := flag.String("dir", "uploads", "folder to keep files in")
	limit := flag.Int("limit", 10_000, "most files that wait to be looked into")
	maxBytes := flag.Int64("max-bytes", 1<<30, "most bytes of one file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *dir, *limit, *maxBytes); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, and returns when every file that was accepted has been looked into.
func run(ctx context.Context, addr, dir string, limit int, maxBytes int64) error {
	store, err := openStore(dir)
	if err != nil {
		return err
	}
	pool := workers.New(workers.Config{})
	u := newUpload(pool, store, limit, maxBytes)
	if err := u.catchUp(ctx); err != nil {
		return errors.Join(err, u.work.Close(ctx), pool.Close(ctx))
	}
	s := &web.Server{Handler: u.routes(), ReadHeaderTimeout: time.Minute}
	ln, err := s.Listen("tcp", addr)
	if err == nil {
		log.Print("listening on ", ln.Addr())
		<-ctx.Done()
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return errors.Join(err, s.Shutdown(ctx), u.work.Close(ctx), pool.Close(ctx))
}
