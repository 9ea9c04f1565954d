package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// MaxHeader is the longest header of version 2 that is taken, in bytes. One with an address
	// needs 28 or 52; the rest is for additional fields, which may hold a certificate.
	MaxHeader = 4096
	// maxLine is the longest header of version 1, with its CRLF (section 2.1).
	maxLine = 107
)

// Parse's errors are one of these, with what was wrong.
var (
	ErrMissing   = errors.New("proxyproto: the connection does not begin with a PROXY header")
	ErrMalformed = errors.New("proxyproto: malformed PROXY header")
)

// A Header is what a PROXY header says.
type Header struct {
	// Source is the client's address, Destination the one that it has connected to. Both are zero
	// if the connection's own addresses hold: for the command LOCAL, and for protocols other than
	// TCP.
	Source, Destination netip.AddrPort
}

const (
	lineStart = "PROXY "
	signature = "\r\n\r\n\x00\r\nQUIT\n"
)

// Parse reads the header at the start of p, of version 1 or 2. n is its length, or 0 if p is only
// the beginning of one; then p is shorter than MaxHeader. An error is final: no further byte
// changes it.
func Parse(p []byte) (n int, h Header, err error) {
	switch {
	case len(p) == 0:
		return 0, h, nil
	case begins(p, lineStart):
		return parseLine(p)
	case begins(p, signature):
		return parseBinary(p)
	}
	return 0, h, fmt.Errorf("%w: %q", ErrMissing, p[:min(len(p), len(signature))])
}

// begins reports whether p begins with start, as far as it goes.
func begins(p []byte, start string) bool {
	n := min(len(p), len(start))
	return string(p[:n]) == start[:n]
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// parseLine is version 1 (section 2.1).
func parseLine(p []byte) (n int, h Header, err error) {
	head := p[:min(len(p), maxLine)]
	end := bytes.IndexAny(head, "\r\n")
	switch {
	case end < 0 && len(head) == maxLine:
		return 0, h, malformed("no CRLF in the first %d bytes", maxLine)
	case end < 0 || head[end] == '\r' && end == len(head)-1 && len(head) < maxLine:
		return 0, h, nil
	// "The receiver must not tolerate a single CR or LF character to end the line"
	case !bytes.HasPrefix(head[end:], []byte("\r\n")):
		return 0, h, malformed("a line that ends without CRLF in its first %d bytes", maxLine)
	}
	h, err = lineAddrs(string(head[:end]))
	return end + 2, h, err
}

func lineAddrs(line string) (h Header, err error) {
	fields := strings.Split(line, " ")
	family := fields[1] // "PROXY " is there
	if family == "UNKNOWN" {
		return h, nil // "the receiver must ignore anything presented before the CRLF"
	}
	if family != "TCP4" && family != "TCP6" || len(fields) != 6 {
		return h, malformed("%q", line)
	}
	source, ok1 := textAddr(fields[2], fields[4], family == "TCP4")
	destination, ok2 := textAddr(fields[3], fields[5], family == "TCP4")
	if !ok1 || !ok2 {
		return h, malformed("%q", line)
	}
	return Header{source, destination}, nil
}

// textAddr is an address and a port of a line. ParseAddr refuses what the specification does:
// heading zeros.
func textAddr(ip, port string, is4 bool) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(ip)
	if err != nil || addr.Is4() != is4 || addr.Zone() != "" {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != port {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), true
}

// The bytes behind the signature (section 2.2).
const (
	versionMask    = 0xf0
	version2       = 0x20
	commandLocal   = 0x20
	commandProxy   = 0x21
	familyUnspec   = 0
	familyInet     = 1
	familyInet6    = 2
	familyUnix     = 3
	protocolUnspec = 0
	protocolStream = 1
	protocolDgram  = 2

	commandAt = len(signature)
	familyAt  = commandAt + 1
	lengthAt  = familyAt + 1
	fixedLen  = lengthAt + 2
)

// addrLens are the lengths of a family's two addresses with their ports.
var addrLens = [...]int{familyInet: 2*4 + 2*2, familyInet6: 2*16 + 2*2, familyUnix: 2 * 108}

// parseBinary is version 2 (section 2.2).
func parseBinary(p []byte) (n int, h Header, err error) {
	if len(p) > commandAt {
		switch c := p[commandAt]; {
		case c&versionMask != version2:
			return 0, h, malformed("version %d behind the signature of version 2", c>>4)
		case c != commandLocal && c != commandProxy:
			return 0, h, malformed("unassigned command %d", c&^versionMask)
		}
	}
	if len(p) < fixedLen {
		return 0, h, nil
	}
	n = fixedLen + int(binary.BigEndian.Uint16(p[lengthAt:]))
	switch {
	case n > MaxHeader:
		return 0, h, malformed("%d bytes, of at most %d", n, MaxHeader)
	case len(p) < n:
		return 0, h, nil
	case p[commandAt] == commandLocal:
		return n, h, nil // "discard the protocol block including the family which is ignored"
	}
	h, err = binaryAddrs(p[:n])
	return n, h, err
}

func binaryAddrs(p []byte) (h Header, err error) {
	family, protocol := p[familyAt]>>4, p[familyAt]&0xf
	switch {
	case family > familyUnix || protocol > protocolDgram: // "must be rejected as invalid by receivers"
		return h, malformed("unassigned family and protocol %#02x", p[familyAt])
	case family == familyUnspec || protocol == protocolUnspec:
		return h, nil
	}
	block, n := p[fixedLen:], addrLens[family]
	if len(block) < n {
		return h, malformed("%d bytes for addresses of %d", len(block), n)
	}
	if err := checkFields(p, fixedLen+n); err != nil {
		return h, err
	}
	if protocol == protocolStream && family != familyUnix {
		ips, ports := block[:n-4], block[n-4:n]
		h.Source = binaryAddr(ips[:len(ips)/2], ports[:2])
		h.Destination = binaryAddr(ips[len(ips)/2:], ports[2:])
	}
	return h, nil
}

func binaryAddr(ip, port []byte) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip) // 4 or 16 bytes
	return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(port))
}

const (
	fieldHead     = 3 // type, and length in two bytes
	typeChecksum  = 0x03
	checksumBytes = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkFields skips the additional fields of the header p, which begin at at, and verifies the
// checksum if there is one (section 2.2.4).
func checkFields(p []byte, at int) error {
	checked := false
	for at < len(p) {
		if len(p)-at < fieldHead {
			return malformed("%d bytes behind the last additional field", len(p)-at)
		}
		n := int(binary.BigEndian.Uint16(p[at+1:]))
		value := at + fieldHead
		switch {
		case n > len(p)-value:
			return malformed("an additional field of %d bytes, of which %d are there", n, len(p)-value)
		case p[at] != typeChecksum:
		case checked || n != checksumBytes:
			return malformed("more than one checksum, or one of %d bytes", n)
		case binary.BigEndian.Uint32(p[value:]) != checksum(p, value):
			return malformed("wrong checksum")
		default:
			checked = true
		}
		at = value + n
	}
	return nil
}

// checksum is the CRC32c of the header p with zeros where it stands, at at.
func checksum(p []byte, at int) uint32 {
	sum := crc32.Update(0, castagnoli, p[:at])
	sum = crc32.Update(sum, castagnoli, make([]byte, checksumBytes))
	return crc32.Update(sum, castagnoli, p[at+checksumBytes:])
}
