package push_test

import (
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bustest"
)

func TestMemoryBus(t *testing.T) {
	bustest.Run(t, func() push.Bus { return push.NewMemoryBus(push.MemoryConfig{}) })
}
