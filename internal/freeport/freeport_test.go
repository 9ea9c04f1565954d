package freeport

import (
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestReservedPortsCanBeListenedOn(t *testing.T) {
	for _, address := range For(t, 3) {
		for range 2 { // a program that is started again
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
	}
}

// Goroutines that ask at the same time get different ports.
func TestReservedOnce(t *testing.T) {
	var mu sync.Mutex
	var all []string
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			got, release, err := Reserve(20)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(release)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got...)
		})
	}
	asking.Wait()
	slices.Sort(all)
	if got := len(slices.Compact(slices.Clone(all))); got != 400 {
		t.Errorf("%d different ports, want 400", got)
	}
	if k := reserve(all[0]); k != nil {
		t.Errorf("%s was reserved twice", all[0])
		k.Close()
	}
}

// three are ports that nothing uses, and that no other test asks for.
func three(t *testing.T) span {
	t.Helper()
	for first := 10_000 + os.Getpid()%3_000*3; first < reservable.first-3; first += 3 {
		s := span{first: first, count: 3}
		if _, release, err := s.reserve(3); err == nil {
			release()
			return s
		}
	}
	t.Fatal("there are no three free ports in a row")
	return span{}
}

// A reservation lasts although its release is forgotten.
func TestReservationSurvivesCollector(t *testing.T) {
	s := three(t)
	if _, _, err := s.reserve(3); err != nil {
		t.Fatal(err)
	}
	for range 2 { // with the second one, the finalizers of the first have run
		collected := make(chan struct{})
		runtime.SetFinalizer(&span{}, func(*span) { close(collected) })
		runtime.GC()
		<-collected
	}
	if _, release, err := s.reserve(1); err == nil {
		release()
		t.Error("a port was reserved twice")
	}
	held.Range(func(k, _ any) bool {
		if port := k.(net.PacketConn).LocalAddr().(*net.UDPAddr).Port; port >= s.first && port < s.first+s.count {
			held.Delete(k)
			k.(net.PacketConn).Close()
		}
		return true
	})
}

func TestPortInUseIsNotReserved(t *testing.T) {
	s := three(t)
	addresses, release, err := s.reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	release()
	l, err := net.Listen("tcp", addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.reserve(3)
	if err == nil || !strings.HasPrefix(err.Error(), "only 2 of the ports ") {
		t.Errorf("all three were asked for while one was listened on: %v", err)
	}
	l.Close()
	again, release, err := s.reserve(3)
	if err != nil || !slices.Contains(again, addresses[0]) {
		t.Fatalf("all three were asked for: %v, %v", again, err)
	}
	release()
}
