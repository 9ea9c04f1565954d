package h1

import "bytes"

// validHost reports whether p is uri-host [ ":" port ] (RFC 9110 section 7.2, RFC 3986 section
// 3.2): a name, which may be empty or an IPv4 address, or an IP literal in brackets. Any number of
// digits, and none, is a port.
func validHost(p []byte) bool {
	if len(p) > 0 && p[0] == '[' {
		end := bytes.IndexByte(p, ']')
		return end > 0 && validLiteral(p[1:end]) && validPort(p[end+1:])
	}
	end := bytes.IndexByte(p, ':')
	if end < 0 {
		return validName(p, isRegName)
	}
	return validName(p[:end], isRegName) && validPort(p[end:])
}

// validName reports whether p holds nothing but bytes of a kind and percent-encoded ones.
func validName(p []byte, kind uint8) bool {
	for i := 0; i < len(p); i++ {
		if class[p[i]]&kind != 0 {
			continue
		}
		if p[i] != '%' || len(p)-i <= 2 || class[p[i+1]]&class[p[i+2]]&isHex == 0 {
			return false
		}
		i += 2
	}
	return true
}

// validPort reports whether p is empty, or a colon and *DIGIT.
func validPort(p []byte) bool {
	return len(p) == 0 || p[0] == ':' && allOf(p[1:], isDecimal)
}

// validLiteral reports whether p is IPv6address, with a zone or not (RFC 6874 section 2), or
// IPvFuture.
func validLiteral(p []byte) bool {
	if len(p) > 0 && p[0]|0x20 == 'v' {
		version, address, found := bytes.Cut(p[1:], []byte("."))
		return found && len(version) > 0 && allOf(version, isHex) && len(address) > 0 &&
			allOf(address, isRegName|isColon)
	}
	address, zone, found := bytes.Cut(p, []byte("%25"))
	return validIPv6(address) && (!found || len(zone) > 0 && validName(zone, isUnreserved))
}

// validIPv6 reports whether p is IPv6address: eight groups of one to four hexadecimal digits, of
// which "::" stands for one or more that are zero, and an IPv4 address for the last two.
func validIPv6(p []byte) bool {
	const all = 8
	groups, gap := 0, false
	if bytes.HasPrefix(p, []byte("::")) {
		gap, p = true, p[2:]
		if len(p) == 0 {
			return true
		}
	}
	for {
		n := 0
		for n < len(p) && class[p[n]]&isHex != 0 {
			n++
		}
		if n < len(p) && p[n] == '.' {
			groups += 2
			return validIPv4(p) && (groups == all && !gap || groups < all && gap)
		}
		if n == 0 || n > 4 {
			return false
		}
		groups, p = groups+1, p[n:]
		if len(p) > 1 && p[0] == ':' && p[1] == ':' && !gap {
			gap, p = true, p[1:]
			if len(p) == 1 {
				p = nil
			}
		}
		if len(p) == 0 {
			return groups == all && !gap || groups < all && gap
		}
		if p[0] != ':' {
			return false
		}
		p = p[1:]
	}
}

// validIPv4 reports whether p is IPv4address: four numbers up to 255, without leading zeros.
func validIPv4(p []byte) bool {
	for rest := 3; ; rest-- {
		number, after, found := bytes.Cut(p, []byte("."))
		if !validOctet(number) || found != (rest > 0) {
			return false
		}
		if !found {
			return true
		}
		p = after
	}
}

func validOctet(p []byte) bool {
	if len(p) == 0 || len(p) > 3 || p[0] == '0' && len(p) > 1 {
		return false
	}
	n := 0
	for _, c := range p {
		if !isDigit(c) {
			return false
		}
		n = n*10 + int(c-'0')
	}
	return n <= 255
}
