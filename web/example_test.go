package web_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

// start serves h on an engine of its own, which a program need not have: the default one does.
func start(h http.Handler) (url string, stop func()) {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		panic(err)
	}
	s := &web.Server{Handler: h, Engine: engine, ReadHeaderTimeout: 5 * time.Second}
	listener, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return "http://" + listener.Addr().String(), func() {
		http.DefaultClient.CloseIdleConnections()
		s.Shutdown(context.Background())
		engine.Shutdown(context.Background())
	}
}

func show(url string) {
	res, err := http.Get(url)
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(body), err)
}

// Handlers are those of net/http, and may block.
func ExampleServer() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello/{name}", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Millisecond)
		fmt.Fprintf(w, "Hello, %s", r.PathValue("name"))
	})
	url, stop := start(mux)
	defer stop()
	show(url + "/hello/Ann")
	// Output: 200 Hello, Ann <nil>
}

// Serve is http.Serve on the default engine, which goes on for as long as the program does.
func ExampleServe() {
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(web.Serve(listener, http.FileServer(http.Dir("."))))
}

// The files hold a certificate with its chain, and its key, in PEM.
func ExampleListenAndServeTLS() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "This is %s.", r.Host)
	})
	log.Fatal(web.ListenAndServeTLS(":443", "cert.pem", "key.pem", nil))
}

func ExampleServeTLS() {
	listener, err := net.Listen("tcp", ":443")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(web.ServeTLS(listener, http.FileServer(http.Dir(".")), "cert.pem", "key.pem"))
}

// A stream of events goes on when its handler has returned.
func ExampleEvents() {
	url, stop := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream, err := web.Events(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		go func() {
			_ = stream.Send(web.Event{ID: "1", Name: "score", Data: []byte("2:1")})
			_ = stream.Close()
		}()
	}))
	defer stop()
	show(url)
	// Output:
	// 200 id: 1
	// event: score
	// data: 2:1
	//
	//  <nil>
}

// A detached response outlives its handler and costs no goroutine while it waits: it is written to
// from wherever there is something to say.
func ExampleDetached() {
	streams := make(chan *web.Stream, 1)
	url, stop := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream, err := web.Detached(w)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		streams <- stream
	}))
	defer stop()
	go func() {
		stream := <-streams
		io.WriteString(stream, "written after the handler has returned")
		stream.Close()
	}()
	show(url)
	// Output: 200 written after the handler has returned <nil>
}
