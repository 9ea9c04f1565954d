package driver

import (
	"net"
	"net/netip"
	"strconv"
)

// Addr is a peer's address as raw bytes: 24 bytes in a connection instead of a string and its
// header. The zero Addr is unknown, as the peer of a unix socket usually is.
type Addr struct {
	ip     [16]byte
	zone   uint32
	port   uint16
	family family
	told   bool // AsAnnounced
}

type family uint8

const (
	familyNone family = iota
	familyIPv4
	familyIPv6
	familyUnix
)

// UnixAddr is the address of a unix socket without a name.
var UnixAddr = Addr{family: familyUnix}

// AddrFrom4 and AddrFrom16 make an Addr of what the kernel reports. zone is the scope id.
func AddrFrom4(ip [4]byte, port uint16) Addr {
	a := Addr{port: port, family: familyIPv4}
	copy(a.ip[:], ip[:])
	return a
}

func AddrFrom16(ip [16]byte, zone uint32, port uint16) Addr {
	return Addr{ip: ip, zone: zone, port: port, family: familyIPv6}
}

// AddrOf converts a net.Addr; what has no place in an Addr becomes the zero one.
func AddrOf(na net.Addr) Addr {
	switch na := na.(type) {
	case *net.TCPAddr:
		return AddrOfPort(na.AddrPort())
	case *net.UnixAddr:
		return UnixAddr
	}
	return Addr{}
}

// AddrOfPort converts the address of a TCP socket; one that is not valid becomes the zero Addr.
func AddrOfPort(ap netip.AddrPort) Addr {
	ip := ap.Addr()
	switch {
	case ip.Is4() || ip.Is4In6():
		return AddrFrom4(ip.Unmap().As4(), ap.Port())
	case ip.Is6():
		return AddrFrom16(ip.As16(), ZoneID(ip.Zone()), ap.Port())
	}
	return Addr{}
}

// ZoneID is the scope id of a zone, which is an interface's name or its number; 0 if it is neither.
func ZoneID(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if ifi, err := net.InterfaceByName(zone); err == nil {
		return uint32(ifi.Index)
	}
	id, err := strconv.ParseUint(zone, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(id)
}

// AsAnnounced marks an address that the socket does not have: a proxy has told it.
func (a Addr) AsAnnounced() Addr {
	a.told = true
	return a
}

// IsAnnounced reports whether a was marked by AsAnnounced.
func (a Addr) IsAnnounced() bool { return a.told }

// Net is the address in the form that net.Conn speaks; nil for the zero Addr.
func (a Addr) Net() net.Addr {
	switch a.family {
	case familyIPv4:
		return &net.TCPAddr{IP: net.IP(a.ip[:4:4]), Port: int(a.port)}
	case familyIPv6:
		return &net.TCPAddr{IP: net.IP(a.ip[:]), Port: int(a.port), Zone: zoneName(a.zone)}
	case familyUnix:
		return &net.UnixAddr{Name: unnamed, Net: "unix"}
	}
	return nil
}

// unnamed is how package net prints the address of a unix socket without a name, on Linux.
const unnamed = "@"

func zoneName(id uint32) string {
	if id == 0 {
		return ""
	}
	ifi, err := net.InterfaceByIndex(int(id))
	if err != nil { // it may have gone
		return strconv.FormatUint(uint64(id), 10)
	}
	return ifi.Name
}

// AppendTo appends what Net().String() would be without the addresses in between.
func (a Addr) AppendTo(dst []byte) []byte {
	switch a.family {
	case familyIPv4:
		for i, b := range a.ip[:4] {
			dst = append(appendByte(dst, b), ".:"[i/3])
		}
		return strconv.AppendUint(dst, uint64(a.port), 10)
	case familyIPv6:
		ip := netip.AddrFrom16(a.ip).Unmap().WithZone(zoneName(a.zone))
		return netip.AddrPortFrom(ip, a.port).AppendTo(dst)
	}
	return append(dst, unnamed...)
}

// appendByte appends b as a decimal number. It is for each request of a server: strconv takes twice
// as long.
func appendByte(dst []byte, b byte) []byte {
	if b >= 100 {
		dst = append(dst, '0'+b/100)
	}
	if b >= 10 {
		dst = append(dst, '0'+b/10%10)
	}
	return append(dst, '0'+b%10)
}

// String is AppendTo as a string.
func (a Addr) String() string { return string(a.AppendTo(nil)) }

// Unspecified reports whether a is a wildcard such as 0.0.0.0 or ::, or unknown.
func (a Addr) Unspecified() bool { return a.ip == [16]byte{} && a.family != familyUnix }
