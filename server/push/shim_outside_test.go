package push_test

import (
	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/centrifuge"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/doors/redis"
)

func init() {
	push.UseDoors(func(c push.MercureConfig) []push.Door {
		return doors.All(doors.Config{Mercure: mercure.Config(c)})
	}, centrifuge.RunMessage, func(s *push.Server, engine *myriad.Engine) *resp.Server {
		return redis.Listener(s, engine)
	})
}
