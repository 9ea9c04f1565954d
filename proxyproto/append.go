package proxyproto

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// AppendV1 appends the header as a line of text (version 1), for a proxy that passes connections
// on. A Header without valid addresses is "PROXY UNKNOWN".
func (h Header) AppendV1(dst []byte) []byte {
	source, destination, is4, ok := h.alike()
	switch {
	case !ok:
		return append(dst, "PROXY UNKNOWN\r\n"...)
	case is4:
		dst = append(dst, "PROXY TCP4 "...)
	default:
		dst = append(dst, "PROXY TCP6 "...)
	}
	dst = append(source.Addr().AppendTo(dst), ' ')
	dst = append(destination.Addr().AppendTo(dst), ' ')
	dst = append(strconv.AppendUint(dst, uint64(source.Port()), 10), ' ')
	dst = strconv.AppendUint(dst, uint64(destination.Port()), 10)
	return append(dst, "\r\n"...)
}

// AppendV2 appends the header in its binary form (version 2), without additional fields. A Header
// without valid addresses has the command LOCAL.
func (h Header) AppendV2(dst []byte) []byte {
	dst = append(dst, signature...)
	source, destination, is4, ok := h.alike()
	if !ok {
		return append(dst, commandLocal, familyUnspec<<4|protocolUnspec, 0, 0)
	}
	family := byte(familyInet6)
	if is4 {
		family = familyInet
	}
	dst = append(dst, commandProxy, family<<4|protocolStream, 0, byte(addrLens[family]))
	dst = append(dst, source.Addr().AsSlice()...)
	dst = append(dst, destination.Addr().AsSlice()...)
	dst = binary.BigEndian.AppendUint16(dst, source.Port())
	return binary.BigEndian.AppendUint16(dst, destination.Port())
}

// alike are both addresses in one family: IPv6 if one of them is. ok is false if one is not valid.
func (h Header) alike() (source, destination netip.AddrPort, is4, ok bool) {
	s, d := h.Source.Addr().Unmap().WithZone(""), h.Destination.Addr().Unmap().WithZone("")
	is4, ok = s.Is4() && d.Is4(), s.IsValid() && d.IsValid()
	if ok && !is4 {
		s, d = netip.AddrFrom16(s.As16()), netip.AddrFrom16(d.As16())
	}
	return netip.AddrPortFrom(s, h.Source.Port()), netip.AddrPortFrom(d, h.Destination.Port()), is4, ok
}
