// Package web runs net/http handlers on the event loops of package myriad. Server has the fields and methods of
// http.Server where their meaning is the same; a connection that waits for a request costs a few hundred bytes and no
// goroutine.
//
// The loop reads and parses; handlers run on a pool of goroutines and may block (Server.Dispatch chooses). A
// request is an ordinary *http.Request and stays valid after its handler has returned. Its body streams: the
// handler starts when the head is complete, and the loop stops reading when maxBodyBuffer bytes wait to be read.
//
// What is ambiguous is refused: a request that two servers could understand differently gets a 400, and the connection
// closes in such a way that the client can read the answer, even while it is still sending.
//
// Upgrade gives a connection to another protocol. Detached lets a response outlive its handler without holding a
// goroutine, which is how server-sent events and long polls are held by the ten thousand.
package web
