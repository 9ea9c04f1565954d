// Package proxyproto receives the PROXY protocol, versions 1 and 2. A load balancer for TCP sends
// its header in front of a connection's bytes, to tell the address of the client.
//
//	o := proxyproto.Options{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
//	engine.Listen("tcp", addr, o.Handler(next))
//
// The next handler is opened when the header has come. Then Conn.RemoteAddr is the client's
// address, and Conn.LocalAddr the address to which the client has connected. The header comes
// before TLS, so next may be a handler of tlsloop, too. A connection that has sent its header costs
// nothing for it: no goroutine, no layer, no memory. For HTTP set web.Server.ProxyProtocol instead.
//
// # Trusted networks
//
// Connections from the networks of [Options.Trusted], and those on a unix socket, must begin with a
// header. From all other addresses a header is the first bytes of the next handler's protocol: an
// HTTP server answers them with 400. So no client can claim an address, and health checks from
// elsewhere need no header. A header is never optional, because the specification forbids to guess
// (section 2).
//
// # What is refused
//
// From a trusted network a connection is reset, and the log says why, once in 10 s with the number
// of failures, if
//
//   - it begins with anything but a header;
//   - its header does not follow the specification, its checksum included, or is longer than 107
//     bytes (version 1) or [MaxHeader] (version 2);
//   - its header is not complete in time.
//
// One that ends before its first byte is closed without a log line: health checks do that.
//
// # What a header says
//
// The addresses of TCP over IPv4 and IPv6 are used. The command LOCAL, the protocol UNKNOWN,
// AF_UNSPEC, AF_UNIX and UDP leave the connection its own addresses. Additional fields (TLVs) are
// skipped, but for a checksum (PP2_TYPE_CRC32C), which must be right.
//
// Specification: https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
package proxyproto
