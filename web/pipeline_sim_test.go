package web

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file is what happens in a pipeline when a goroutine of the world loses its processor at a
// given moment. What needs no such moment stands in testdata/pipelines.txt.

// A handler of a chain that has not begun when its connection is lost never runs. The connection is
// lost while the handler before it runs, for which Shutdown waits, or when that has returned and
// its answer was taken.
func TestLostClientsHandlersDoNotBegin(t *testing.T) {
	for name, returned := range map[string]bool{"while one runs": false, "between two": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1, sim.Calm())
			world := &haltingWorld{World: w, forTime: 10 * time.Millisecond}
			var st *stage
			ran, ended := "", 0
			s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ran += r.URL.Path
				if r.URL.Path == "/1" && returned {
					world.handler, world.looks = driver.Goroutine(), 2 // for the date, and for how long it has taken
				} else if r.URL.Path == "/1" {
					st.wait(10 * time.Millisecond)
				}
				ended++
			})}
			st = newStage(t, w, world, s, myriad.Config{})
			p := st.Dial(st.at)
			st.ask(p, time.Millisecond, "/0", "/1", "/2", "/3")
			if returned != (ended == 2) || returned != (len(answers(t, string(p.Received()))) == 2) {
				t.Fatalf("not what the test is about: %d handlers have returned", ended)
			}
			p.Reset()
			st.RunFor(time.Millisecond)
			if err := s.Shutdown(atLength(t)); err != nil || ended != 2 {
				t.Errorf("Shutdown: %v, when %d handlers had ended", err, ended)
			}
			st.RunFor(time.Second)
			if ran != "/0/1" {
				t.Errorf("these handlers ran: %s, want /0/1", ran)
			}
		})
	}
}

// A handler of a chain may find the queue full before the loop has gone on to it: the room that
// comes then is announced to the one before. It must not wait for another announcement.
//
// Here the first handler sends two files, of which the second finds no place. While the loop is
// busy with the first file, the second finds it, the first handler returns, and the next fills the
// queue. When the loop comes back from the driver it sends all of that, and calls Drained for the
// refusal that the first handler has had.
func TestRoomComesBeforeTheTurn(t *testing.T) {
	const limit = 8 << 10
	w := newWorld(1, sim.Calm())
	world := &haltingWorld{World: w, forTime: 10 * time.Microsecond}
	text := bytes.Repeat([]byte("0123456789abcdef"), 256)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var full uint64
	var st *stage
	st = newStage(t, w, world, &Server{Dispatch: DispatchPool, WriteTimeout: time.Hour,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/files" {
				w.Header().Set("Content-Length", fmt.Sprint(2*len(text)))
				copyFile(t, w, name)
				world.handler, world.looks = driver.Goroutine(), 2 // the second is after the refusal
				copyFile(t, w, name)
				full = st.engine.Stats().Full
				return
			}
			for range 10 {
				w.Write(text[:2<<10])
				w.(http.Flusher).Flush()
			}
		})}, myriad.Config{WriteLimit: limit})
	p := st.Dial(st.at)
	st.ask(p, time.Second, "/files", "/behind")
	if full != 1 || !world.halted {
		t.Fatalf("not what the test is about: %d calls were refused, the loop was halted: %v", full, world.halted)
	}
	got := answers(t, string(p.Received()))
	if len(got) != 2 || got[0] != string(text)+string(text) || len(got[1]) != 20<<10 {
		t.Errorf("%d answers; the handler of the second waits for room that there is", len(got))
	}
	p.Close()
}

func copyFile(t *testing.T, w io.Writer, name string) {
	f, err := os.Open(name)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := io.Copy(w, f); err != nil {
		t.Error(err)
	}
}

// A haltingWorld lets others run where a goroutine of a real one may lose its processor: its loop
// while a file is given to the driver, and a handler when it looks at the clock.
type haltingWorld struct {
	*sim.World
	handler uint64 // the goroutine
	looks   int    // it lets others run at that look, forTime
	forTime time.Duration
	halted  bool // the loop has been, in time
}

func (w *haltingWorld) Now() time.Time {
	if w.looks > 0 && driver.Goroutine() == w.handler {
		if w.looks--; w.looks == 0 {
			w.NewParker().ParkFor(w.forTime)
		}
	}
	return w.World.Now()
}

func (w *haltingWorld) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := w.World.Open(loop, o)
	return haltingDriver{d, w}, err
}

type haltingDriver struct {
	driver.Driver
	w *haltingWorld
}

func (d haltingDriver) SendFile(id driver.ID, f driver.File, off, n int64) (int64, error) {
	queued, err := d.Driver.SendFile(id, f, off, n)
	if !d.w.halted {
		d.w.halted = d.w.handler != 0
		d.w.NewParker().ParkFor(time.Millisecond)
	}
	return queued, err
}
