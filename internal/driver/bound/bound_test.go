package bound

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/std"
)

func open(t *testing.T) driver.Driver {
	t.Helper()
	d, err := System{std.System{}}.Open(1, driver.Options{ReadBuffer: 100})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// elsewhere runs f on another goroutine, and returns what it panicked with.
func elsewhere(f func()) (panicked any) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		f()
	}()
	<-done
	return panicked
}

type ignoring struct{ driver.Events }

// A goroutine that is locked to its thread may make every call, however often others want the
// thread.
func TestLockedOwner(t *testing.T) {
	if p := elsewhere(func() {
		runtime.LockOSThread()
		d := open(t)
		for range 2 * displacedPolls {
			if n, err := d.Poll(0, ignoring{}); n != 0 || err != nil {
				t.Errorf("Poll: %d, %v", n, err)
			}
		}
		if err := d.Shutdown(); err != nil {
			t.Error(err)
		}
	}); p != nil {
		t.Error(p)
	}
}

// A goroutine that is not locked to its thread is found out within a few Polls.
func TestOwnerNotLocked(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("threads have no number here")
	}
	var inner driver.Driver
	p := elsewhere(func() {
		d := open(t)
		inner = d.(*Driver).inner
		for range displacedPolls {
			_, _ = d.Poll(0, ignoring{})
		}
	})
	if text, _ := p.(string); !strings.Contains(text, "Poll on goroutine") {
		t.Errorf("Polls of a goroutine that is not locked: %v", p)
	}
	if err := inner.Shutdown(); err != nil {
		t.Error(err)
	}
}

// Every method but Wake and Capabilities refuses another goroutine.
func TestOtherGoroutine(t *testing.T) {
	d := open(t).(*Driver)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _ = d.Poll(0, ignoring{})
	for name, f := range map[string]func(){
		"Poll": func() { _, _ = d.Poll(0, ignoring{}) }, "Shutdown": func() { _ = d.Shutdown() },
		"Listen": func() { _, _ = d.Listen(nil) }, "Attach": func() { _, _ = d.Attach(nil) },
		"Dial": func() { _, _ = d.Dial(&net.TCPAddr{}) }, "Send": func() { d.Send(0, &buf.Chain{}) },
		"SendFile": func() { _, _ = d.SendFile(0, nil, 0, 0) }, "Detach": func() { _ = d.Detach(0) },
		"StopAccept": func() { d.StopAccept(0) }, "ResumeAccept": func() { d.ResumeAccept(0) },
		"CloseListener": func() { d.CloseListener(0) }, "CloseWrite": func() { d.CloseWrite(0) },
		"Pause": func() { d.Pause(0) }, "Resume": func() { d.Resume(0) }, "Close": func() { d.Close(0) },
		"Abort": func() { d.Abort(0) }, "Cut": func() { d.Capabilities().Cut(0) },
	} {
		if text, _ := elsewhere(f).(string); !strings.HasPrefix(text, "contract: "+name+" on goroutine") {
			t.Errorf("%s on another goroutine: %q", name, text)
		}
	}
	if p := elsewhere(func() { d.Wake(); _ = d.Capabilities().ThreadBound }); p != nil {
		t.Error(p)
	}
	if err := d.Shutdown(); err != nil {
		t.Error(err)
	}
}
