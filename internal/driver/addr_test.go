package driver

import (
	"net"
	"net/netip"
	"testing"
)

// An address is printed as package netip does.
func TestAddrAppendTo(t *testing.T) {
	for i := range 256 {
		for _, port := range []uint16{0, 9, 80, 8080, 65535} {
			ip := [4]byte{byte(i), byte(255 - i), byte(i * 7), byte(i / 2)}
			want := "at " + netip.AddrPortFrom(netip.AddrFrom4(ip), port).String()
			if got := string(AddrFrom4(ip, port).AppendTo([]byte("at "))); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
}

// A unix socket without a name has the address that package net gives it.
func TestUnixAddr(t *testing.T) {
	if got := UnixAddr.Net(); UnixAddr.String() != "@" || got.String() != "@" || got.Network() != "unix" ||
		AddrOf(got) != UnixAddr {
		t.Errorf("%v, as a net.Addr %s %q", UnixAddr, got.Network(), got)
	}
}

// A zone is a name or a number, of an interface that may not be there (any more).
func TestAddrZones(t *testing.T) {
	for _, text := range []string{"[fe80::1%2147480000]:80", "[fe80::1%1]:80", "[fe80::1]:80"} {
		a := AddrOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)))
		again := AddrOf(a.Net())
		if again != a || a.zone == 0 && text != "[fe80::1]:80" {
			t.Errorf("%s became %v, and by way of a net.Addr %v", text, a, again)
		}
	}
	if id := ZoneID("nonsense"); id != 0 {
		t.Errorf("the zone of no interface is %d", id)
	}
}
