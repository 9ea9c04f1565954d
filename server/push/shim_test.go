package push

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push/hub"
)

// The doors import this package, so its own tests cannot import them. Package push_test can, and
// gives them to the tests here.

// Given by UseDoors.
var (
	testDoors     func(MercureConfig) []Door
	runMessage    func(s *hub.Session, p []byte) // of a client of Centrifuge
	redisListener func(s *Server, engine *myriad.Engine) *resp.Server

	jsonForm, protobufForm, uniForm, eventForm hub.Form // of Centrifuge in a WebSocket, and of /events
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
func UseDoors(all func(MercureConfig) []Door, run func(*hub.Session, []byte),
	redis func(*Server, *myriad.Engine) *resp.Server) {
	testDoors, runMessage, redisListener = all, run, redis
	jsonForm, protobufForm = formOf("websocket", "json"), formOf("websocket", "protobuf")
	uniForm, eventForm = formOf("uni_websocket", "json"), formOf("events", "json")
}

// formOf returns the first form of that kind.
func formOf(transport, protocol string) hub.Form {
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

// What the tests of the API name of it.
const (
	rpcService      = "/centrifugal.centrifugo.api.CentrifugoApi/"
	rpcPrefix       = 5
	rpcCompressed   = 1
	errorModeHeader = "X-Centrifugo-Error-Mode"
)

// rpcFrame returns a message of gRPC that is not compressed.
func rpcFrame(message []byte) []byte {
	dst := make([]byte, rpcPrefix, rpcPrefix+len(message))
	binary.BigEndian.PutUint32(dst[1:], uint32(len(message)))
	return append(dst, message...)
}

// rpcName returns the name in the gRPC API of a method: PresenceStats for presence_stats.
func rpcName(method string) string {
	if method == "rpc" {
		return "RPC"
	}
	var name strings.Builder
	for word := range strings.SplitSeq(method, "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// unservedMethods are those that only other servers of the protocol have.
var unservedMethods = []string{"rpc", "map_publish", "map_remove", "map_read_state", "map_read_stream", "map_stats",
	"map_clear", "shared_poll_publish"}

// An apiMethod is a method of the API with the fields of its request.
type apiMethod struct {
	name   string
	fields []string
}

// apiMethods are those that the API's own description has, without batch.
func (ts *testServer) apiMethods() (list []apiMethod) {
	ts.t.Helper()
	var document struct {
		Paths map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]struct {
						Schema struct{ Properties map[string]any }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(ts.do("GET", "/api/openapi.json", "").Body.Bytes(), &document); err != nil {
		ts.t.Fatal(err)
	}
	for path, item := range document.Paths {
		if name := strings.TrimPrefix(path, "/api/"); name != "batch" {
			properties := item.Post.RequestBody.Content["application/json"].Schema.Properties
			list = append(list, apiMethod{name, slices.Sorted(maps.Keys(properties))})
		}
	}
	if len(list) != 13 {
		ts.t.Fatalf("the API describes %d methods", len(list))
	}
	return list
}

// What the tests of the console name of it.
const (
	listedChannels   = 200
	shownHistory     = 20
	shownConnections = 50

	tokenBytes        = 64 << 10
	explainedChannels = 20
)

// An explainedToken is what the console says of a token.
type explainedToken struct {
	Error    string            `json:"error"`
	User     string            `json:"user"`
	Ends     *time.Time        `json:"ends"`
	Claims   []json.RawMessage `json:"claims"`
	Channels []struct {
		Subscribe string `json:"subscribe"`
		Publish   string `json:"publish"`
	} `json:"channels"`
}

// A consoleStats is what the console shows of figures.
type consoleStats struct {
	Version         string       `json:"version"`
	Development     bool         `json:"development"`
	Connections     int64        `json:"connections"`
	Channels        int          `json:"channels"`
	Publishes       uint64       `json:"publishes"`
	Messages        uint64       `json:"messages"`
	SlowDisconnects uint64       `json:"slow_disconnects"`
	UptimeSeconds   int64        `json:"uptime_seconds"`
	QueueLimit      int          `json:"queue_limit"`
	Loops           []loopStats  `json:"loops"`
	Slow            []SlowClient `json:"slow"`
	Fields          []string     `json:"fields"`
	Samples         [][]int64    `json:"samples"`
}

type loopStats struct {
	Conns         int    `json:"conns"`
	Turns         uint64 `json:"turns"`
	BusyMicros    int64  `json:"busy_us"`
	LongTurns     uint64 `json:"long_turns"`
	LongestMicros int64  `json:"longest_us"`
	Queued        int64  `json:"queued"`
	BytesIn       uint64 `json:"bytes_in"`
	BytesOut      uint64 `json:"bytes_out"`
}

// A shownNamespace is the rules of a namespace in the console.
type shownNamespace struct {
	Name  string `json:"name"`
	Rules []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"rules"`
}

// consoleFiles are the files of the console's page.
var consoleFiles = os.DirFS("console/page").(fs.ReadFileFS)

// publishAs publishes p, whose fields a program cannot all set.
func (s *Server) publishAs(ctx context.Context, channel string, p Publication) (Position, error) {
	return s.hub.Publish(ctx, channel, p, false, false)
}
