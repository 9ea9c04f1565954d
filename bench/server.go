package main

import (
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/myriad-go/myriad/web"
)

// serveVariable makes the program one of the servers.
const serveVariable = "MYRIAD_BENCH_SERVE"

// serverNames are in the order of their turns.
var serverNames = []string{"net/http", "web"}

const answer = "Hello, World!"

func plaintext(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, answer)
}

// serve prints its address as one line and lives until its input ends, which it does with the process that started it.
func serve(name string, in io.Reader, out io.Writer) error {
	addr, err := listen(name)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, addr); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

func listen(name string) (net.Addr, error) {
	switch name {
	case "net/http":
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		go http.Serve(ln, http.HandlerFunc(plaintext))
		return ln.Addr(), nil
	case "web":
		ln, err := (&web.Server{Handler: http.HandlerFunc(plaintext)}).Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return ln.Addr(), nil
	}
	return nil, fmt.Errorf("there is no server %q: there are %q", name, serverNames)
}
