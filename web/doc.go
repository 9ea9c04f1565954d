// Package web runs net/http handlers on the event loops of package myriad. Server has the fields
// and methods of http.Server where their meaning is the same. A connection that waits for a request
// costs no goroutine and a few hundred bytes; many of them cost less than two hundred each.
//
// The loop reads and parses. Handlers may block: they run on a pool of goroutines, or on the loop
// while their route is known to be quick (DispatchAuto). If a handler blocks there, a new goroutine
// runs the loop. A request is an ordinary *http.Request and stays valid after its handler has
// returned. Its body streams: the handler starts when the head is complete, and the loop stops
// reading when maxBodyBuffer bytes wait to be read.
//
// A request that two servers could understand differently is refused with 400. The connection
// closes in such a way that the client can read the answer, even while it is still sending.
//
// # Differences from net/http
//
// Go's own tests of its server pass here, but for what follows. What is refused or accepted
// otherwise on the wire is listed in package internal/h1.
//
//   - HTTP/2 is not served, unless TLSNextProto has a function for "h2"; net/http offers it over
//     TLS by itself.
//   - A head that is not complete in time is answered with 408 (RFC 9110 section 15.5.9); net/http
//     closes without a word.
//   - Of the connections of a loop, 32 at a time may have more than 32 KiB of a head that is not
//     complete. Others are not read from until one of these is complete, while their time for a
//     head runs.
//   - With no timeout set, a connection that has not begun a request after a minute is closed, and
//     a head that has begun has a minute. IdleTimeout bounds the silence of a new connection, too,
//     if neither ReadTimeout nor ReadHeaderTimeout is set. net/http waits for ever. Bodies, answers
//     and the wait between requests have no bound by default, as there.
//   - A refused request has Date and Content-Length in its answer, and the reason in its body, not
//     in the status line.
//   - Bodies are read ahead, up to 64 KiB and one read buffer, whether the handler reads them or
//     not; and a closing connection reads on for a while, so that a client that is still sending
//     gets the answer instead of a reset.
//   - Reading a body and writing an answer never exclude each other. An answer that is whole when
//     its handler returns waits for what is to come of the body, as there (not if the connection
//     ends with it, or 256 KiB are left, or after ResponseController.EnableFullDuplex), but five
//     seconds at most. What is sent before, by Flush or because it is more than 2 KiB, does not,
//     and says that the connection closes if the body is chunked, has not come to its end, and
//     nobody has begun to read it (not after EnableFullDuplex).
//   - A Read that fails for a fault in a chunk's line does so at the first byte that is wrong; and
//     of a trailer it does not repeat the line.
//   - http.MaxBytesReader stops the handler at its limit as usual, but cannot tell this server to
//     close the connection: that goes by an interface nobody else can implement. It closes after an
//     answer of 413 whose handler has begun to read its body and not come to the end, or if much of
//     the body is left.
//   - A Write behind one that has failed fails itself; there it says that all is well if there is
//     room to gather it. Flush after Hijack fails; there it panics.
//   - A handler's informational answers (1xx) are not sent to a client of HTTP/1.0 (RFC 9110
//     section 15.2).
//   - A field with http.TrailerPrefix is sent as a trailer also if the whole answer was gathered
//     before it was set. To HTTP/1.0, which has no trailers, it costs an answer neither its length
//     nor the connection.
//   - A handler's Content-Length that is no number, or stands beside a Transfer-Encoding, is as if
//     it were not there. net/http sends the one to HTTP/1.0 and for HEAD, and compares the other
//     with what is written.
//   - A handler's Connection field ends the connection if "close" is one of its members (RFC 9112
//     section 9.6); for net/http it must be all of it, in small letters.
//   - A NUL in a handler's field is sent as a space, as CR and LF are, and an empty
//     Transfer-Encoding not at all; there both can go out as they are.
//   - What a handler has written beyond the 2 KiB that are gathered is sent. There it waits in 4
//     KiB more, and is lost if the handler panics before they are full.
//   - ReadFrom gathers what it cannot have the kernel send, as Write does; net/http sends the first
//     512 bytes at once, and what comes behind them if the length is known. It keeps to a declared
//     Content-Length, as Write does; there it does not. Of a file that the kernel sends it returns
//     as soon as that is queued: a handler that calls http.ServeFile does not wait for its client,
//     and ConnState hears of StateIdle while the file is still being sent. Behind a large answer
//     IdleTimeout may last an eighth longer, or a second; with a WriteTimeout it begins when that
//     has passed, if something had not been sent when the handler returned.
//   - Hijack sends what was written before; net/http its head alone. The request's body cannot be
//     read any more then (http.ErrHijacked); there it could be, and must not.
//   - Hijack of a connection that the listener has wrapped (a type of its own, a *tls.Conn of
//     tls.NewListener) gives another net.Conn, whose method NetConn gives the listener's, to be
//     looked at.
//   - SetReadDeadline of a ResponseController bounds the body alone: when that has been read it
//     means nothing. There it ends the request's context.
//   - Close does not wait until Serve has returned, so that handlers may call it anywhere; Shutdown
//     does, as long as its context lets it.
//   - A trailer that is announced twice is sent once.
//   - A handler that changes its request's Method or ProtoMinor changes nothing about how its
//     answer is framed; there it does.
//   - Hijack and CloseNotify behind the end of the handler do not panic: the one fails, and the
//     other gives a channel.
//   - Hijack behind a chunked body of which something has come gives that without its framing, if
//     it has not been read.
//   - Close of a request's body neither waits nor fails, nor fills in the Trailer: what is left is
//     read away when the handler has returned. net/http reads it in Close, also one that it has not
//     asked for.
//   - A body that the client offers by "Expect: 100-continue" and that nobody has read ends the
//     connection, whatever stands in Request.Body. net/http waits for it without having asked, if
//     the handler has put something else there, such as an http.MaxBytesReader.
//   - An answer behind a body that has ended too soon says that the connection closes.
//   - ConnState does not hear of StateIdle between pipelined requests that have come already.
//   - The address of a client on a unix socket is "@", also if the client's socket has a name.
//   - Deadlines set on a net.Conn that the listener gave to Serve have no effect afterwards: the
//     connection is the engine's. Use ResponseController, or the net.Conn that Hijack returns.
//     ConnState and ConnContext get a *myriad.Conn for a *net.TCPConn or *net.UnixConn, for what
//     the server has accepted itself and with ServeTLS; else what the listener gave, also a
//     *tls.Conn of tls.NewListener. Who closes it ends the contexts of its handlers when the client
//     has closed its side, too, or Config.LingerTimeout has passed, and not at once.
//   - A ConnContext that panics or returns nil, or a ConnState that panics, costs its connection,
//     and the engine logs it; net/http's Serve panics with the first, and so does this one for a
//     connection of tls.NewListener. A callback of TLSConfig that panics is logged as a failed
//     handshake, and by the engine.
//   - Handlers run on goroutines that are kept for a while, so that runtime.NumGoroutine falls only
//     some time after a burst: 10 to 15 s.
//   - Labels of runtime/pprof that a handler sets end with it, and those of the goroutine that
//     calls Serve or Listen are not inherited. With net/http both hold for later requests of the
//     connection.
//   - After SetKeepAlivesEnabled(false) no answer says keep-alive; there those to HTTP/1.0 do, and
//     the connection closes all the same.
//   - A server does not run in a bubble of package testing/synctest: its loops, and other
//     goroutines it shares, are outside.
//   - The *http.Server under http.ServerContextKey has this server's settings and serves nothing:
//     its Shutdown, Close and SetKeepAlivesEnabled end nothing here. Use the Server's own.
//   - What cannot become a request any more, such as bytes of TLS on a port without it (of which
//     the log is told), is answered with 400 at once; net/http waits for the end of a line or of
//     the head, and says nothing if the client ends its side within four bytes behind an earlier
//     request.
//   - A connection whose client has left part of an answer unread when WriteTimeout ends is reset,
//     so that what is queued costs no memory; net/http ends it behind what the kernel has taken.
//   - User information in an absolute request target is refused with 400 (RFC 9110 section 4.2.4).
//   - An answer that has begun and is cut short (a panic, a deadline) ends over TLS in the middle
//     of a record, so that one whose end is that of its connection does not look whole. net/http
//     does so by chance behind a deadline, and sends a close_notify after a panic.
//   - Shutdown waits five seconds for a connection on which no request has begun, and for a head
//     that has begun, as net/http does for a new connection: a request may be on its way.
//
// Upgrade gives a connection to another protocol. Detached lets a response outlive its handler
// without holding a goroutine, which is how server-sent events and long polls are held by the ten
// thousand.
package web
