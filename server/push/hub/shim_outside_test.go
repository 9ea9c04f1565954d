package hub_test

import (
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/centrifuge"
	"github.com/myriad-go/myriad/server/push/hub"
)

func init() {
	hub.UseDoors(func() []hub.Door { return doors.All(doors.Config{}) }, centrifuge.RunMessage)
}
