package debug_test

import (
	"bufio"
	"context"
	"expvar"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/debug"
)

// A separate server serves an engine's page and its variable.
func Example() {
	engine, err := myriad.Start(myriad.Config{Loops: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Shutdown(context.Background())

	mux := http.NewServeMux()
	mux.Handle("/debug/myriad", debug.Handler(engine))
	mux.Handle("/debug/vars", expvar.Handler())
	expvar.Publish("myriad", expvar.Func(debug.Var(engine)))
	server := httptest.NewServer(mux) // in production, an address that only operators reach
	defer server.Close()

	answer, err := server.Client().Get(server.URL + "/debug/myriad")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Scan()
	fmt.Println(lines.Text())
	// Output: myriad: 0 connections on 2 loops
}
