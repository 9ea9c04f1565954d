package hub

import (
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }
