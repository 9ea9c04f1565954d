// Package myriad is a non-blocking network engine: a few event loops that hold very many
// connections at the cost of a few hundred bytes each, with an interface that is asynchronous and
// yet looks like net.Conn.
//
// An [Engine] runs loops. A [Conn] belongs to one [Loop] for life and does only bytes; what it
// speaks is a [Handler], which may be exchanged at any time ([Conn.SetHandler]): that is how
// protocols are upgraded, negotiated and sniffed. A [Layer] stands between socket and handler and
// changes the bytes, as TLS does.
//
// A handler's methods run on the conn's loop, one at a time, and must not block: they hold up every
// other conn of that loop. Work that may block is given to goroutines (package workers), which
// write to the conn from wherever they are: Write, Close and Abort may be called from any goroutine
// and never block. Work that is quick most of the time may run on the loop instead, as an
// [InlineTask].
//
// Everything is bounded. Write takes all bytes or, when the conn's queue is at its limit, none
// (ErrFull); Loop.Do refuses when the loop's mailbox is full (ErrBusy); at Config.MaxConns the
// engine stops accepting and goes on by itself; a Close that the peer does not let finish ends
// after Config.LingerTimeout.
//
// Engine.Stats says what the loops do without stopping them; package debug shows it on a page.
package myriad
