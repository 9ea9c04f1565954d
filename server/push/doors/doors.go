// Package doors has all protocols that a push server speaks. One that speaks others, or fewer,
// lists its own in push.Config.Doors.
package doors

import (
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/api"
	"github.com/myriad-go/myriad/server/push/console"
	"github.com/myriad-go/myriad/server/push/doors/centrifuge"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/doors/redis"
	"github.com/myriad-go/myriad/server/push/doors/sse"
)

// Config is what can be said of the doors. The zero value is the default.
type Config struct {
	Mercure mercure.Config
}

// All returns a new door for each protocol, the HTTP API and the console among them, for one
// server. That for Redis has no path: see [redis.Listener].
func All(c Config) []push.Door {
	return []push.Door{
		centrifuge.New(),
		sse.New(),
		redis.New(),
		mercure.New(c.Mercure),
		api.New(),
		console.New(),
	}
}
