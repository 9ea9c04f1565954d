// Command grpc serves a gRPC service and ordinary HTTP on one port. The service is grpc-go's, which
// is an http.Handler; web.Server has its streams on loops.
//
//	go run ./examples/grpc
package main

//go:generate protoc -Isums --go-grpc_out=paths=source_relative:sums sums.proto

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"

	"google.golang.org/grpc"

	"github.com/myriad-go/myriad/examples/grpc/sums"
	"github.com/myriad-go/myriad/web"
)

// maxStreams is how many calls a client may have open on one connection. Its next ones wait.
const maxStreams = 1000

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "where to listen")
	flag.Parse()
	if err := run(*listen); err != nil {
		log.Fatal(err)
	}
}

func run(addr string) error {
	s := grpc.NewServer()
	sums.RegisterSumsServer(s, calculator{})
	server := newServer(s)
	ln, err := server.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Println("listening on", ln.Addr())
	return ln.Wait()
}

// newServer serves calls by rpc, and other requests beside them. Without TLS, clients of gRPC begin
// with HTTP/2's preface, which UnencryptedHTTP2 allows. With TLS nothing needs to be set.
func newServer(rpc *grpc.Server) *web.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &web.Server{
		Handler:   routes(rpc),
		Protocols: protocols,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
}

func routes(rpc http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "This port also has the gRPC service myriad.sums.Sums.")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
