package resp

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/resp/wire"
)

// statefulCommands change what a connection is sent, or ask about it. A # stands for a number.
var statefulCommands = []string{"PING", "PING x", "ECHO x", "GET none", "NOPE", "HELLO 2", "HELLO 3", "HELLO",
	"HELLO 9", "HELLO 3 SETNAME me", "CLIENT REPLY ON", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY x",
	"CLIENT GETNAME", "CLIENT SETNAME you", "CLIENT SETNAME \"\"", "RESET", "SUBSCRIBE c#", "SUBSCRIBE c# c#",
	"UNSUBSCRIBE c#", "UNSUBSCRIBE c# c#", "PSUBSCRIBE c*#", "PUNSUBSCRIBE c*#", "PUBLISH d x", "PUBSUB NUMPAT",
	"QUIT", "SUBSCRIBE", "PUBSUB CHANNELS nothing", "", "AUTH x", "PSUBSCRIBE [c#"}

// statefulInput is a pipeline of such commands, some of them inline.
func statefulInput(r *rand.Rand) (in []byte) {
	for range 1 + r.IntN(14) {
		c := statefulCommands[r.IntN(len(statefulCommands))]
		if strings.HasPrefix(c, "QUIT") && r.IntN(3) > 0 {
			continue
		}
		for strings.Contains(c, "#") {
			c = strings.Replace(c, "#", fmt.Sprint(r.IntN(2)), 1)
		}
		if words := strings.Fields(c); len(words) > 0 && !strings.Contains(c, `"`) && r.IntN(2) == 0 {
			in = wire.AppendCommand(in, words...)
		} else {
			in = append(in, c+"\r\n"...)
		}
	}
	return in
}

// Whatever state a connection is in, it is answered as redis-server answers it.
func TestStatesLikeRedis(t *testing.T) {
	socket := redis(t)
	id := regexp.MustCompile(`\$2\r\nid\r\n:\d+\r\n`)
	r := rand.New(rand.NewPCG(3, 4))
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		addr := serve(t, &Server{Dispatch: d})
		for range soak.Size(t, 700, 20_000) {
			in := string(statefulInput(r))
			want := id.ReplaceAllString(answerTo(t, "unix", socket, in), "")
			if got := id.ReplaceAllString(answerTo(t, "tcp", addr, in), ""); got != want {
				i := 0
				for i < min(len(got), len(want)) && got[i] == want[i] {
					i++
				}
				t.Errorf("%q: behind %d bytes: got %.200q, redis-server says %.200q", in, i, got[i:], want[i:])
			}
			// A client sees the end of its connection before its patterns have gone. Those of one
			// input would be counted in the next one.
			for _, to := range [][2]string{{"unix", socket}, {"tcp", addr}} {
				for strings.Contains(strings.ToUpper(in), "PSUBSCRIBE") &&
					answerTo(t, to[0], to[1], "PUBSUB NUMPAT\r\n") != ":0\r\n" {
					time.Sleep(time.Millisecond)
				}
			}
		}
	})
}
