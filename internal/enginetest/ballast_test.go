package enginetest

import (
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/std"
)

// A hull is a world that counts the holders of its ballast.
type hull struct {
	driver.System
	held, released atomic.Int32
}

func (h *hull) Facilities() driver.Facilities {
	has := h.System.Facilities()
	has.Ballast = func() (release func()) {
		h.held.Add(1)
		return func() { h.released.Add(1) }
	}
	return has
}

func TestEngineHoldsBallast(t *testing.T) {
	h := &hull{System: std.System{}}
	e, err := myriad.Start(myriad.Config{System: h, Logger: quiet, Loops: 3})
	if err != nil {
		t.Fatal(err)
	}
	if held, released := h.held.Load(), h.released.Load(); held != 1 || released != 0 {
		t.Errorf("an engine that runs holds %d and has released %d, want 1 and 0", held, released)
	}
	if err := e.Shutdown(atLength(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an engine that has ended releases it", func() bool { return h.released.Load() > 0 })
	if held, released := h.held.Load(), h.released.Load(); held != 1 || released != 1 {
		t.Errorf("an engine that has ended holds %d and has released %d, want 1 and 1", held, released)
	}
}
