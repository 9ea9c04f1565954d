package freeport

import (
	"net"
	"os"
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

// Those who ask at the same time get different ports.
func TestReservedOnce(t *testing.T) {
	var mu sync.Mutex
	var all []string
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			got := For(t, 20)
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

// three are ports that no other test asks for.
func three() span { return span{first: 10_000 + os.Getpid()%3_000*3, count: 3} }

func TestPortInUseIsNotReserved(t *testing.T) {
	addresses, release, err := three().reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	release()
	l, err := net.Listen("tcp", addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = three().reserve(3)
	if err == nil || !strings.HasPrefix(err.Error(), "only 2 of the ports ") {
		t.Errorf("all three were asked for while one was listened on: %v", err)
	}
	l.Close()
	again, release, err := three().reserve(3)
	if err != nil || !slices.Contains(again, addresses[0]) {
		t.Fatalf("all three were asked for: %v, %v", again, err)
	}
	release()
}
