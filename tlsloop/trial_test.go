package tlsloop_test

import (
	"testing"

	"github.com/myriad-go/myriad/tlsloop"
)

// A property of crypto/tls: it tells a key log the secrets of a connection before it writes the
// first record with them, and what it has sealed with them can be counted. Without it crypto/tls
// keeps all connections.
func TestPropertyRecords(t *testing.T) {
	if err := tlsloop.TryRecords(); err != nil {
		t.Error(err)
	}
}
