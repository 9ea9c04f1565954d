package driver

import (
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
