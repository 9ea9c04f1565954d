// Package h2 is HTTP/2 (RFC 9113) as pure functions on bytes: frames, settings, the rules of
// fields, priorities (RFC 9218), windows and budgets.
//
//	n, f, err := h2.ParseFrame(p, 16<<10) // n is 0: the frame is not complete yet
//	switch f.Type {
//	case h2.Headers:
//		block = f.Data // compressed, see internal/hpack
//	}
//	out = h2.AppendPing(out, f.Ping(), true)
//
// An error says how far it goes: for a stream, which is reset, or for the connection. What depends
// on the state of a stream or a connection is checked by internal/mux.
package h2
