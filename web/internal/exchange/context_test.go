package exchange

import (
	"context"
	"testing"
)

// aKey is a key of a context's value.
type aKey struct{}

// A context that is asked only after its end has ended, and keeps the values of its connection's.
func TestContextAskedAfterItsEnd(t *testing.T) {
	base, end := context.WithCancel(context.WithValue(t.Context(), aKey{}, "ann"))
	defer end()
	c := &requestContext{Link: &Link{From: &Origin{Base: base}}}
	if c.End(); c.Err() != context.Canceled {
		t.Errorf("the error is %v", c.Err())
	}
	if <-c.Done(); c.Err() != context.Canceled || c.Value(aKey{}) != "ann" {
		t.Errorf("afterwards the error is %v, the value %v", c.Err(), c.Value(aKey{}))
	}
}

// A context ends with the error of its base, whether it is asked before or after.
func TestContextHasTheErrorOfItsBase(t *testing.T) {
	for _, asked := range []bool{false, true} {
		base, end := context.WithTimeout(t.Context(), -1)
		defer end()
		c := &requestContext{Link: &Link{From: &Origin{Base: base}}}
		if asked {
			<-c.Done()
		}
		if c.End(); c.Err() != context.DeadlineExceeded {
			t.Errorf("asked for its end before: %t: the error is %v", asked, c.Err())
		}
		if <-c.Done(); c.Err() != context.DeadlineExceeded {
			t.Errorf("asked for its end before: %t: then the error is %v", asked, c.Err())
		}
	}
}

// A client that goes after the handler has ended is not reported.
func TestCloseNotifyBehindTheHandler(t *testing.T) {
	c := &requestContext{Link: &Link{From: &Origin{Base: context.Background()}}}
	gone := c.CloseNotify()
	c.End()
	if c.LoseConn(true); len(gone) > 0 {
		t.Error("told")
	}
}
