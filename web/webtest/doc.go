// Package webtest tests handlers whose answers outlive them: those that call web.Detached,
// web.Events or websocket.Accept. It is to package web what httptest is to net/http. A recorder of
// httptest cannot stand for such answers, because they are written by a connection's event loop.
//
// Record and Dial give a handler one request, on a server and an engine of their own, which end
// with the test:
//
//	answer := webtest.Record(t, handler, httptest.NewRequest("GET", "/events", nil))
//	if e := answer.Event(); string(e.Data) != "hello" {
//		t.Errorf("got %q", e.Data)
//	}
//	answer.Leave() // OnClose of the handler's stream follows
//
//	socket := webtest.Dial(t, handler, httptest.NewRequest("GET", "/chat", nil))
//	socket.Send("hello")
//	if got := socket.Receive(); got != "hello" {
//		t.Errorf("got %q", got)
//	}
//
// NewServer, NewTLSServer and NewUnstartedServer are for several requests, as those of httptest.
// Servers listen on a free port of the loopback interface.
package webtest
