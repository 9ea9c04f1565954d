// Package flow has the bounded queues between a loop and the goroutine of a handler:
//
//	var in flow.Inbox              // bytes from the peer
//	in.Reset(64<<10, false)
//	full := in.Put(p, last)        // the loop: full says that it should stop reading
//	n, tell, err := in.Read(p)     // the goroutine: tell says that the loop should look again
//	in.Wait(parker, nil)           // and it waits for more
//
//	var out flow.Outbox            // bytes for the peer
//	out.Reset(64 << 10)
//	tell, err := out.Put(head, p, last)   // the goroutine: all or nothing
//	n, end, room := out.Cut(p)            // the loop: as much as the peer takes now
//
// Neither queue knows a connection or a version of HTTP. A method never blocks, except Wait, and
// calls nothing back. It returns what its caller has to do instead: tell asks the goroutine to wake
// the loop (myriad.Conn.Notify), room asks the loop to let the goroutine go on. Each is said once
// for each time that it is needed, so that a long body costs few wakes.
//
// L in the comment of a method means that only the loop calls it, H that only the handler's side
// does, from any goroutine.
package flow
