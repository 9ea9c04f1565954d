package push_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/web"
)

// A lineDoor is a door of another program: at /lines?channel=NAME each publication is a line.
type lineDoor struct{}

// A lineForm is its form.
type lineForm struct{ hub.QuietForm }

func (lineForm) Kind() (transport, protocol string) { return "lines", "text" }

func (lineForm) Publications(_ string, list []push.Publication) (lines []byte) {
	for i := range list {
		lines = append(append(lines, list[i].Data...), '\n')
	}
	return lines
}

func (lineForm) Ping() (payload []byte, answered bool) { return []byte("\n"), false }

func (lineForm) Share(payload []byte) hub.Shared { return web.NewChunk(payload) }

func (lineDoor) Forms() []hub.Form { return []hub.Form{lineForm{}} }

func (lineDoor) Open(h *hub.Hub) (clients, admin func(*http.ServeMux)) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		channel := r.URL.Query().Get("channel")
		g, ok := h.AdmitRequest(w, r, lineForm{}, hub.Bearer(r), []string{channel})
		if !ok {
			return
		}
		err := h.ServeStream(w, r, lineForm{}, g, nil, func(s *hub.Session) error {
			wanted, err := s.AdmitAll([]string{channel}, g)
			if err != nil {
				return err
			}
			return s.Join(wanted[channel], func(hub.Welcome) {})
		}, nil)
		if err != nil {
			h.Refuse(w, r, err)
		}
	}
	return func(mux *http.ServeMux) {
		mux.HandleFunc("GET /lines", h.UnlessDraining(h.LimitConnections(serve)))
	}, nil
}

// A door needs nothing but what package push exports.
func TestFifthDoor(t *testing.T) {
	asked := make(chan push.Caller, 1)
	pusher, err := push.New(push.Config{Doors: []push.Door{lineDoor{}},
		Namespaces: []push.Namespace{{Name: "secret", SubscribeHook: true}, {}},
		Hooks: push.Hooks{
			Subscribe: func(_ context.Context, c push.Caller, _ push.SubscribeRequest) (push.SubscribeAnswer, error) {
				asked <- c
				return push.SubscribeAnswer{}, push.ErrPermissionDenied
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &web.Server{Handler: pusher, Engine: engine}
	listener, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{}}
	get := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, "GET", "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	refused := get("/lines?channel=secret:1")
	refused.Body.Close()
	if refused.StatusCode != http.StatusForbidden {
		t.Errorf("a channel that the hook refuses: %s", refused.Status)
	}
	if c := <-asked; c.Transport != "lines" || c.Protocol != "text" {
		t.Errorf("the hook was asked about %+v", c)
	}
	answer := get("/lines?channel=news")
	for _, text := range []string{`"one"`, `"two"`} {
		if err := pusher.Publish(ctx, "news", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(answer.Body)
	for _, want := range []string{`"one"`, `"two"`} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("got %q, %v; want %q", lines.Text(), lines.Err(), want)
		}
	}
	list, err := pusher.Connections(ctx, "")
	if err != nil || len(list) != 1 || list[0].Transport != "lines" || list[0].Protocol != "text" {
		t.Errorf("the connections are %+v, %v", list, err)
	}
	if err := errors.Join(pusher.Shutdown(ctx), s.Shutdown(ctx), engine.Shutdown(ctx)); err != nil {
		t.Error(err)
	}
	if lines.Scan() {
		t.Errorf("got %q behind the end", lines.Text())
	}
	answer.Body.Close()
	client.CloseIdleConnections()
}

// A limitedDoor is a door without paths that has many forms.
type limitedDoor struct{ forms int }

// A numberedForm is one of them.
type numberedForm struct {
	lineForm
	number int
}

func (d limitedDoor) Forms() (forms []hub.Form) {
	for i := range d.forms {
		forms = append(forms, numberedForm{number: i})
	}
	return forms
}

func (limitedDoor) Open(*hub.Hub) (clients, admin func(*http.ServeMux)) { return nil, nil }

// Doors with more forms than Door allows are refused with an error that says what to do.
func TestTooManyForms(t *testing.T) {
	for forms, refused := range map[int]bool{31: false, 32: true} {
		s, err := push.New(push.Config{Doors: []push.Door{lineDoor{}, limitedDoor{forms}}})
		if (err != nil) != refused {
			t.Errorf("%d forms: %v", forms+1, err)
		}
		if err != nil && !strings.Contains(err.Error(), "33 forms, at most 32") {
			t.Errorf("the error is %v", err)
		}
		if s != nil {
			s.Shutdown(context.Background())
		}
	}
}
