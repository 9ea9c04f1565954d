package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/web/webtest"
	"github.com/myriad-go/myriad/websocket"
)

// shared are goroutines that outlive a test in order. They are those of the default engine, and
// workers, which wait for further tasks for 10 to 15 s.
var shared = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/myriad-go/myriad.(*Loop).run"),
	goleak.IgnoreAnyFunction("github.com/myriad-go/myriad/internal/handoff.(*Monitor).run"),
	goleak.IgnoreAnyFunction("github.com/myriad-go/myriad/workers.(*worker).live"),
	goleak.IgnoreAnyFunction("github.com/myriad-go/myriad/workers.(*Pool).monitor"),
}

func TestMain(m *testing.M) {
	if os.Getenv(exampletest.AsProgram) != "" {
		main()
		return
	}
	code := m.Run()
	if err := checkLeaks(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// checkLeaks stops the default engine, which only a program may do that has ended all it had there.
func checkLeaks() error {
	engine, err := myriad.Default()
	if err != nil {
		return err
	}
	if err := engine.Shutdown(context.Background()); err != nil {
		return err
	}
	return goleak.Find(shared[2:]...) // the engine has ended
}

// A test that leaves nothing behind passes a check for leaks, if the check knows what is shared.
func TestNothingLeaks(t *testing.T) {
	defer goleak.VerifyNone(t, shared...)
	s := &web.Server{Handler: routes()} // on the default engine
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hc := &http.Client{Transport: &http.Transport{}}
	if answer, err := hc.Get("http://" + ln.Addr().String() + "/hello"); err != nil {
		t.Error(err)
	} else {
		_ = answer.Body.Close()
	}
	hc.CloseIdleConnections()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if goleak.Find() == nil {
		t.Error("a check for leaks that does not know what is shared finds nothing")
	}
}

// webtest has an engine of its own, and a pool of its own is the test's to close: nothing is left.
func TestNothingIsShared(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ended := make(chan struct{})
	o := &websocket.Options{
		Dispatch:  web.DispatchInline, // or DispatchPool with Workers, a pool that the test closes
		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) { _ = c.Write(op, p) },
		OnClose:   func(*websocket.Conn, error) { close(ended) },
	}
	s := webtest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = websocket.Accept(w, r, o)
	}))
	c, _, err := websocket.Dial(t.Context(), "ws"+s.URL[len("http"):],
		&websocket.DialOptions{Options: websocket.Options{Engine: s.Config.Engine, Pull: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(websocket.OpText, []byte("hello")); err != nil {
		t.Error(err)
	}
	if _, p, err := c.Read(t.Context()); string(p) != "hello" {
		t.Errorf("%q, %v", p, err)
	}
	s.Close()
	<-ended
}
