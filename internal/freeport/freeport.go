// Package freeport reserves ports of this machine for programs that cannot listen on port 0. The
// nodes of a cluster are such programs: each is told the addresses of the others before it starts.
// A test that starts a node again finds its port free, although tests of other packages run at the
// same time.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// A span is count ports from first.
type span struct{ first, count int }

// By default, Linux, macOS and Windows give no such port to an outgoing connection or to a listener
// on port 0.
var reservable = span{first: 20_000, count: 12_000}

// held has all reservations. The garbage collector would close a socket that nothing refers to.
var held sync.Map // of net.PacketConn: nil

// Reserve returns n addresses, 127.0.0.1 with a port on which no TCP socket listens. Until release
// is called, or the process ends, neither this process nor another one gets the same port from
// Reserve. Anyone may listen on it: a UDP socket of the same number keeps the reservation.
func Reserve(n int) (addresses []string, release func(), err error) { return reservable.reserve(n) }

func (s span) reserve(n int) (addresses []string, release func(), err error) {
	var kept []net.PacketConn
	release = func() {
		for _, k := range kept {
			held.Delete(k)
			_ = k.Close() // nothing was sent
		}
	}
	start := rand.IntN(s.count)
	for i := 0; i < s.count && len(kept) < n; i++ {
		address := fmt.Sprintf("127.0.0.1:%d", s.first+(start+i)%s.count)
		if k := reserve(address); k != nil {
			held.Store(k, nil)
			kept, addresses = append(kept, k), append(addresses, address)
		}
	}
	if len(kept) < n {
		release()
		return nil, nil, fmt.Errorf("only %d of the ports %d to %d are free, %d are needed", len(kept), s.first,
			s.first+s.count-1, n)
	}
	return addresses, release, nil
}

// reserve returns nil if the address is in use or reserved.
func reserve(address string) net.PacketConn {
	kept, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err == nil {
		err = listener.Close()
	}
	if err != nil {
		_ = kept.Close()
		return nil
	}
	return kept
}

// A Test is a *testing.T or *testing.B.
type Test interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}

// For is Reserve until the end of a test. The test fails if there are not so many ports.
func For(t Test, n int) []string {
	t.Helper()
	addresses, release, err := Reserve(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addresses
}
