// Package freeport finds ports of this machine for programs that are told where to listen, such as
// the nodes of a cluster, which must know each other's addresses before they start. Tests of
// several packages run at the same time, and a test may start a node again: a port must stay with
// the one that has asked for it.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// A span is count ports from first.
type span struct{ first, count int }

// The ports are outside of the ranges from which systems take those of outgoing connections and of
// "port 0": 32768 and above on Linux, 49152 and above elsewhere.
var quiet = span{first: 20_000, count: 12_000}

// Reserve returns n addresses, 127.0.0.1 with a port on which no TCP socket listens. Until release
// is called, or the process ends, neither this process nor another one gets the same port from
// Reserve. Anyone may listen on it: a UDP socket of the same number keeps the reservation.
func Reserve(n int) (addresses []string, release func(), err error) { return quiet.reserve(n) }

func (s span) reserve(n int) (addresses []string, release func(), err error) {
	var kept []net.PacketConn
	release = func() {
		for _, k := range kept {
			_ = k.Close() // nothing was sent
		}
	}
	start := rand.IntN(s.count)
	for i := 0; i < s.count && len(kept) < n; i++ {
		address := fmt.Sprintf("127.0.0.1:%d", s.first+(start+i)%s.count)
		if k := reserve(address); k != nil {
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
