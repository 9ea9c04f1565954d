// Package web runs net/http handlers on the event loops of package myriad.
//
//	mux := http.NewServeMux()
//	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
//		fmt.Fprintln(w, "hello", r.FormValue("name"))
//	})
//	s := &web.Server{Addr: "127.0.0.1:8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
//	log.Fatal(s.ListenAndServe())
//
// Server has the fields and methods of http.Server, with the same meaning. An idle connection costs
// no goroutine and a few hundred bytes; many of them cost less than two hundred bytes each.
//
// The loop reads and parses. Handlers may block: they run on a pool of goroutines, or on the loop
// while their route is known to be quick (DispatchAuto). If a handler blocks there, a new goroutine
// runs the loop. A request is an ordinary *http.Request and stays valid after its handler has
// returned. Its body streams: the handler starts when the head is complete.
//
// HTTP/2 is served over TLS, where ALPN chooses it, and without TLS if Server.Protocols says so.
// Its streams have no goroutine: only handlers that run have one. Server.HTTP2 has its limits.
//
// # Differences from net/http
//
// Go's own tests of its server pass here, except for a list of differences. The file
// docs/net-http.md has all of them, each with a test. These matter most when a program is ported:
//
//   - A handler does not begin when its client has disconnected or reset the HTTP/2 stream.
//   - Without timeouts, a new connection has one minute to begin its first request, and each head
//     has one minute. Bodies, answers and the wait between requests have no limit, as in net/http.
//   - ConnState and ConnContext get a *myriad.Conn, no *net.TCPConn and no *tls.Conn. Deadlines set
//     on the listener's connection have no effect: use http.ResponseController.
//   - A listener that wraps its connections costs two goroutines for each of them. Use
//     myriad.Config.MaxConns, ServeTLS and Server.ProxyProtocol instead.
//   - A request that two servers could understand differently is refused with 400: a bare LF at the
//     end of a line, two lengths, a folded line, a Host that does not follow the grammar. The
//     connection closes so that the client can read the answer, even while it is still sending.
//
// # Answers that outlive their handler
//
// Detached lets a response outlive its handler without a goroutine, and Events does so for
// server-sent events. Upgrade gives a connection to another protocol.
package web
