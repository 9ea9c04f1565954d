package myriad_test

import (
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// TestMain fails on goroutines, descriptors and blocks that outlive the tests.
func TestMain(m *testing.M) {
	leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse})
}
