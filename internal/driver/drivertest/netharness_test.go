package drivertest

import (
	"io"
	"net"
	"testing"
)

// A connection may be accepted just when the test ends. No other code would end it, and the end
// would wait for it.
func TestHarnessAcceptsAfterItsEnd(t *testing.T) {
	h := &netHarness{}
	h.close()
	p := h.newPeer()
	accepted, dialed := net.Pipe()
	p.start(accepted)
	if _, err := dialed.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the peer of a connection that was accepted after the end reads %v, want EOF", err)
	}
	h.work.Wait()
}
