package push

import (
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp"
)

// The doors import this package, so its own tests cannot import them. Package push_test can, and
// gives them to the tests here.

// Given by UseDoors.
var (
	testDoors     func(MercureConfig) []Door
	runMessage    func(s *Session, p []byte) // of a client of Centrifuge
	redisListener func(s *Server, engine *myriad.Engine) *resp.Server

	jsonForm, protobufForm, uniForm, eventForm Form // of Centrifuge in a WebSocket, and of /events
)

// A MercureConfig has the fields of mercure.Config.
type MercureConfig struct {
	Anonymous       bool
	PublisherSecret string
	Subscriptions   bool
	HistorySize     int
	HistoryAge      time.Duration
}

// UseDoors gives the tests what they need of the doors.
func UseDoors(all func(MercureConfig) []Door, run func(*Session, []byte),
	redis func(*Server, *myriad.Engine) *resp.Server) {
	testDoors = func(c MercureConfig) []Door { return append(all(c), newAPIDoor(), newConsoleDoor()) }
	runMessage, redisListener = run, redis
	jsonForm, protobufForm = formOf("websocket", "json"), formOf("websocket", "protobuf")
	uniForm, eventForm = formOf("uni_websocket", "json"), formOf("events", "json")
}

// formOf returns the first form of that kind.
func formOf(transport, protocol string) Form {
	for _, d := range testDoors(MercureConfig{}) {
		for _, f := range d.Forms() {
			if t, p := f.Kind(); t == transport && p == protocol {
				return f
			}
		}
	}
	panic("no form of " + transport + " in " + protocol)
}

// What the tests of the Mercure hub name of it.
const (
	mercurePath          = "/.well-known/mercure"
	subscriptionsPath    = mercurePath + "/subscriptions"
	mercureCookie        = "mercureAuthorization"
	mercureContext       = "https://mercure.rocks/"
	mercureDetail        = "https://mercure.rocks/authorization-detail"
	mercureLastDetail    = "mercure"
	mercureLog           = "\x00mercure"
	mercureHistoryAge    = time.Hour
	errorBadRedisChannel = "ERR the name of a channel is empty, too long, not UTF-8, or has control characters"
)
