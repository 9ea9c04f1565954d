// Package client is an HTTP client on event loops. A request costs no goroutine but its caller's
// own, and by a callback not even that.
//
//	hc := &http.Client{Transport: &client.Transport{}}
//	r, err := hc.Get("https://example.com/")
//
//	t := &client.Transport{MaxConnsPerHost: 100}
//	t.Do(req, func(r *http.Response, err error) { … }) // without a goroutine that waits
//
// A [Transport] is an http.RoundTripper with the fields of http.Transport, so that http.Client and
// httputil.ReverseProxy need no other change. [Transport.Do] gives a response by callback, and
// [OnBody] its body.
//
// A [Group] sends any number of requests, so many at a time, and reports each outcome:
//
//	g := &client.Group{AtOnce: 500, PerHost: 10, Retry: client.Retry{Attempts: 3}}
//	sum, err := g.Each(ctx, requests, func(o client.Outcome) { … })
//
// # Life of a request
//
// A request is [Queued] until it has a connection: an idle one, the first that becomes free, or one
// that is [Dialing]. What becomes free goes to the request of its host that has waited longest, and
// a new connection to the request for which it was dialled. Then a request is [Sent]: its
// goroutine, or the loop, writes it. The [Head] of the response, then its [Body], come in pieces to
// the connection's loop. It parses them with the grammar of the server (internal/h1), as strictly.
// A call is [Done] when nothing more comes. Package debug shows how many requests of an engine are
// in each phase. An [Error] of Do or of a Group says in which phase its request was; RoundTrip
// returns the errors of http.Transport.
//
// If a kept connection turns out to be closed, the request is sent again on another, by the rules
// of net/http: it must be idempotent, or nothing of it was sent. Its body must be had again by
// GetBody, which must not block.
//
// # HTTP/2
//
// HTTP/2 is spoken where the server agrees to it by ALPN, or by prior knowledge (see Protocols).
// Then the requests for a host share a connection, up to the server's limit of streams. Those
// beyond it get another connection, or wait in order (HTTP2.StrictMaxConcurrentRequests). Until it
// is known whether a host speaks HTTP/2, one connection is dialled for all of its requests, and one
// more each 30 ms.
//
// A request that the server has refused, or that is above the last stream of its GOAWAY, is sent
// again whatever its method. A body that is not read holds up its own stream only. If a request is
// given up and the server sends nothing for a second, not even an answer to PING, its connection
// gets no more requests.
//
// # What costs a goroutine
//
//   - A request body that is not in memory (bytes.Reader, bytes.Buffer, strings.Reader), while it
//     is sent: its Read may block, and the response may come first.
//   - A name, while it is being resolved (Engine.DialFunc).
//   - A Group: two for each run, one of them for the iterator. Retry.Prepare, Proxy and GetBody run
//     on one for each attempt that has them.
//   - A Transport, while a request waits for another dial to be begun, or a dial goes on that no
//     request needs any more: one goroutine for all of them, 10 s at most behind the last.
//   - DialContext and DialTLSContext, while they run; a net.Conn without a descriptor costs two for
//     as long as it lives. So does TLS to a server through a proxy that is TLS itself.
//   - http.Client.Timeout, which net/http implements for other RoundTrippers than its own by a
//     goroutine. A context with a deadline costs none.
//   - Request.Cancel, which is deprecated, if the context has no deadline.
//
// # Limits
//
// A head, with the interim responses before it, has MaxResponseHeaderBytes (10 MiB) and 16,384
// fields at most. A trailer section has the same limits. A field block of HTTP/2, behind which all
// of its connection waits, has a minute, or ResponseHeaderTimeout if that is shorter.
//
// Of a body that is not read, 64 KiB and one read buffer of the loop are held. Then the loop stops
// reading, and the server has to wait. A request body is read 32 KiB at a time, as the server takes
// it. MaxQueued requests wait for a connection. A proxy has a minute for its answer.
//
// # Differences from http.Transport
//
// docs/net-http.md has all of them, each with a test. These matter most:
//
//   - A response is refused that http.Transport repairs: Content-Length beside Transfer-Encoding, a
//     folded line, a line that ends with a bare LF, a transfer coding other than chunked. RFC 9112
//     calls each of them an error.
//   - A connection is free when the last byte of a response has come, not when it was read.
//   - The hooks of httptrace may run on a loop, and must not block.
//   - Deadlines that DialContext sets on its connection have no effect afterwards.
//   - NewClientConn does not exist, and the functions of TLSNextProto are not called.
package client
