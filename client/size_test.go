package client

import (
	"testing"
	"unsafe"
)

// Ten thousand requests at once hold ten thousand of each of these. The sizes are the allocator's
// classes.
func TestRequestsAreSmall(t *testing.T) {
	for _, x := range []struct {
		name       string
		size, most uintptr
	}{
		{"Call", unsafe.Sizeof(Call{}), 240}, {"conn", unsafe.Sizeof(conn{}), 208},
		{"upload", unsafe.Sizeof(upload{}), 96}, {"dialing", unsafe.Sizeof(dialing{}), 176},
		{"body", unsafe.Sizeof(body{}), 176},
	} {
		if x.size > x.most {
			t.Errorf("a %s has %d bytes, at most %d are allowed", x.name, x.size, x.most)
		}
	}
}
