package debug

import (
	"bytes"
	"encoding/json"
	"expvar"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

const patience = 20 * time.Second

func start(t *testing.T) *myriad.Engine {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 2, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return e
}

func get(t *testing.T, h http.Handler, query string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest("GET", "/debug/myriad"+query, nil))
	return answer
}

// counted is a value of Engine.Shared that has figures.
type counted struct{}

func (counted) Figures() myriad.Figures {
	return myriad.Figures{Title: "apples", Counts: []myriad.Count{{Name: "red", Count: 3}}}
}

func TestFiguresOfOthers(t *testing.T) {
	_, e := simulate(t, 0, silent{}, myriad.Config{})
	e.Shared(counted{}, func() any { return counted{} })
	if text := get(t, Handler(e), "").Body.String(); !strings.Contains(text, "\napples\n           3  red\n") {
		t.Errorf("no figures in\n%s", text)
	}
	if text := get(t, Handler(e), "?format=json").Body.String(); !strings.Contains(text, `"Title": "apples"`) {
		t.Errorf("no figures in\n%s", text)
	}
}

func TestPageOfNoConns(t *testing.T) {
	_, e := simulate(t, 0, silent{}, myriad.Config{Loops: 3})
	answer := get(t, Handler(e), "")
	text := answer.Body.String()
	for _, want := range []string{
		"myriad: 0 connections on 3 loops\n", "\nlimits\n", "\nloops, since their start\n", "\nslowest handlers; ",
		"\nconnections: 0, with 0 bytes queued\n", "\nmost bytes queued\n", "\noldest\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if h := answer.Header(); h.Get("Content-Type") != "text/plain; charset=utf-8" ||
		h.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", h)
	}
}

func TestPageOfManyConns(t *testing.T) {
	const n = 2000
	_, e := simulate(t, n, silent{}, myriad.Config{Loops: 2})
	text := get(t, Handler(e), "?conns=30").Body.String()
	for _, want := range []string{"myriad: 2000 connections on 2 loops\n", "\n        2000  open\n", "debug.silent\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if lines := strings.Count(text, " open "); lines != 30 {
		t.Errorf("%d connections are shown, want 30", lines)
	}
	if text := get(t, Handler(e), "?conns=0").Body.String(); strings.Contains(text, "\nconnections: ") {
		t.Errorf("the page has connections that were not requested:\n%s", text)
	}
}

func TestPageAsJSON(t *testing.T) {
	_, e := simulate(t, 50, &giver{}, myriad.Config{Loops: 2})
	answer := get(t, Handler(e), "?format=json&conns=5")
	decoder := json.NewDecoder(answer.Body)
	decoder.DisallowUnknownFields()
	var r report
	if err := decoder.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Conns != 50 || r.Accepts != 50 || len(r.Loops) != 2 || r.Loops[0].Conns+r.Loops[1].Conns != 50 ||
		r.Limits.Open != 50 {
		t.Errorf("%+v", r)
	}
	if c := r.Connections; c == nil || c.Count != 50 || len(c.Oldest) != 5 || c.Oldest[0].Age == 0 ||
		c.States["paused"] != 5 {
		t.Errorf("%+v", c)
	}
	if answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("header %v", answer.Header())
	}
	if text := get(t, Handler(e), "?format=json&conns=0").Body.String(); strings.Contains(text, "Connections") {
		t.Errorf("the page has connections that were not requested:\n%s", text)
	}
}

func TestPageRefuses(t *testing.T) {
	h := Handler(start(t))
	for _, tc := range []struct {
		method, query, want string
		status              int
	}{
		{"POST", "", "use GET", http.StatusMethodNotAllowed},
		{"GET", "?format=xml", `format="xml"`, http.StatusBadRequest},
		{"GET", "?conns=-1", `conns="-1"`, http.StatusBadRequest},
		{"GET", "?conns=1001", "from 0 to 1000", http.StatusBadRequest},
		{"GET", "?conns=many", `conns="many"`, http.StatusBadRequest},
		{"HEAD", "", "", http.StatusOK},
	} {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(tc.method, "/"+tc.query, nil))
		if answer.Code != tc.status || !strings.Contains(answer.Body.String(), tc.want) {
			t.Errorf("%s %s: %d %s", tc.method, tc.query, answer.Code, answer.Body)
		}
	}
}

// fetch returns the page at url.
func fetch(t *testing.T, url string) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v\n%s", url, r.StatusCode, err, body)
	}
	return string(body)
}

// An engine can serve the page about itself: the loop that serves the page also counts its
// connections.
func TestPageOnTheEngineItself(t *testing.T) {
	e := start(t)
	s := &web.Server{Engine: e, Handler: Handler(e)}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + ln.Addr().String() + "/debug/myriad"
	if text := fetch(t, url); !strings.Contains(text, "myriad: 1 connections on 2 loops\n") ||
		!strings.Contains(text, "\nconnections: 1, with ") {
		t.Errorf("the page's own connection is missing:\n%s", text)
	}
	var r report
	if err := json.Unmarshal([]byte(fetch(t, url+"?format=json")), &r); err != nil || r.Connections.Count < 1 {
		t.Errorf("%v: %+v", err, r)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// While a loop hangs, the page shows what needs no loop. It shows the rest when the loop continues.
func TestPageWhileALoopHangs(t *testing.T) {
	e := start(t)
	server := httptest.NewServer(Handler(e))
	defer server.Close()
	hangs, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	defer free()
	if err := e.Loops()[1].Do(func() { close(hangs); <-release }); err != nil {
		t.Fatal(err)
	}
	<-hangs
	if text := fetch(t, server.URL+"?conns=0"); !strings.Contains(text, "turn now") {
		t.Errorf("no turns in\n%s", text)
	}
	nc, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	io.WriteString(nc, "GET / HTTP/1.0\r\n\r\n")
	var got bytes.Buffer
	for p := make([]byte, 4096); !strings.Contains(got.String(), "slowest handlers"); {
		n, err := nc.Read(p)
		if got.Write(p[:n]); err != nil {
			t.Fatalf("%v after\n%s", err, got.String())
		}
	}
	free()
	rest, err := io.ReadAll(nc)
	if got.Write(rest); err != nil || !strings.Contains(got.String(), "\nconnections: 0, with ") {
		t.Errorf("%v after\n%s", err, got.String())
	}
}

func TestPageWhileThereIsTraffic(t *testing.T) {
	e := start(t)
	s := &web.Server{Engine: e,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 50 {
				if got := fetch(t, "http://"+ln.Addr().String()); got != "hello" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	for range 50 {
		if text := get(t, Handler(e), "").Body.String(); !strings.Contains(text, "\noldest\n") {
			t.Errorf("no connections in\n%s", text)
		}
	}
	clients.Wait()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestVar(t *testing.T) {
	_, e := simulate(t, 3, silent{}, myriad.Config{Loops: 2})
	var r report
	if err := json.Unmarshal([]byte(expvar.Func(Var(e)).String()), &r); err != nil || r.Conns != 3 ||
		r.Limits.Open != 3 || r.Connections != nil {
		t.Errorf("%v: %+v", err, r)
	}
}
