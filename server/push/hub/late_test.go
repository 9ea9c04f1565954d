package hub

import (
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push/answer"
)

// On a node that is late, or behind output that has not left, a client has its time to answer and
// to connect twice, and no more. On others it has it once.
func TestClientsOfALateNodeAreSpared(t *testing.T) {
	for _, tt := range []struct {
		name   string
		late   time.Duration // of the loops
		queued int           // bytes for the client
		times  int
	}{
		{"on time", 0, 0, 1}, {"a little late", lateEnough - 1, 0, 1}, {"late", lateEnough, 0, 2}, {"queued", 0, 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newTestNode(t, func(c *Config) { c.Late = func() time.Duration { return tt.late } })
			c := n.connected()
			for len(c.Take()) == 0 {
				n.clock.Advance(wheelSlot)
			}
			c.Bytes = tt.queued
			n.clock.Advance(time.Duration(tt.times)*n.timing.Pong - wheelSlot)
			c.WantOpen(t, "before the end of its time")
			n.clock.Advance(3 * wheelSlot)
			c.WantClosed(t, "behind its time", answer.DisconnectNoPong)
			if got := n.Ended()["no pong"]; got != 1 {
				t.Errorf("%d sessions are counted as ended for that", got)
			}
			if tt.queued > 0 {
				return
			}
			begun := n.dial()
			n.clock.Advance(time.Duration(tt.times)*n.timing.Connect - wheelSlot)
			begun.WantOpen(t, "before the end of its time to connect")
			n.clock.Advance(3 * wheelSlot)
			begun.WantClosed(t, "behind its time to connect", answer.DisconnectStale)
		})
	}
}

// A timed transport knows when an answer is due.
type timedTransport struct {
	Transport
	refuses        bool
	asked, answers int
}

func (t *timedTransport) AwaitAnswer() bool { t.asked++; return !t.refuses }
func (t *timedTransport) Answered()         { t.answers++ }

// A client whose connection times its answers is not judged by the wheel, and gets no second ping
// before it has answered.
func TestAnswerTimers(t *testing.T) {
	n := newTestNode(t)
	c := n.connected()
	timed := &timedTransport{Transport: c.s.t}
	c.s.t = timed
	n.clock.Advance(n.timing.Ping)
	c.Want(t, "ping", `{}`)
	n.clock.Advance(10 * n.timing.Ping)
	c.Want(t, "a second ping")
	c.WantOpen(t, "ten intervals later")
	if timed.asked < 5 || timed.answers != 0 {
		t.Errorf("the transport was asked to wait %d times and told of %d answers", timed.asked, timed.answers)
	}
	c.frame([]byte(`{}`))
	if timed.answers != 1 {
		t.Errorf("the transport was told of %d answers, want 1", timed.answers)
	}
	c.s.NoAnswer()
	c.WantOpen(t, "after a verdict that is too late")
	n.clock.Advance(n.timing.Ping)
	c.Want(t, "the next ping", `{}`)
	c.s.NoAnswer()
	c.WantClosed(t, "after the verdict", answer.DisconnectNoPong)
	c.s.t = c

	c = n.connected()
	c.s.t = &timedTransport{Transport: c.s.t, refuses: true}
	n.clock.Advance(n.timing.Ping + n.timing.Pong + wheelSlot)
	c.Want(t, "ping", `{}`)
	c.WantClosed(t, "its transport does not wait after all", answer.DisconnectNoPong)
	c.s.t = c
}

// A token expires, of a connection or a subscription. On a node that is late the client has the
// time to send another one twice, and no more, because the new one may lie unread.
func TestTokensOfALateNode(t *testing.T) {
	for _, tt := range []struct {
		late  time.Duration
		times int
	}{{0, 1}, {lateEnough, 2}} {
		n := newTestNode(t, withTokens, func(c *Config) { c.Late = func() time.Duration { return tt.late } })
		n.timing.Ping = time.Hour
		signed := func(claims jwt.MapClaims) string {
			claims["sub"], claims["exp"] = "ann", n.clock.Now().Add(time.Minute).Unix()
			return sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims)
		}
		renewing, idle := n.dial(), n.dial()
		for _, c := range []*fakeTransport{renewing, idle} {
			c.connect(signed(jwt.MapClaims{}))
			more := signed(jwt.MapClaims{"channel": "more"})
			c.frame([]byte(`{"id":3,"subscribe":{"channel":"more","token":"` + more + `"}}`))
			c.Take()
		}
		n.clock.Advance(time.Minute + time.Duration(tt.times)*n.timing.Refresh - wheelSlot)
		for _, c := range []*fakeTransport{renewing, idle} {
			c.Want(t, "before the end of its time")
			c.WantOpen(t, "before the end of its time")
		}
		renewing.frame([]byte(`{"id":4,"refresh":{"token":"` + signed(jwt.MapClaims{}) + `"}}` + "\n" +
			`{"id":5,"sub_refresh":{"channel":"more","token":"` + signed(jwt.MapClaims{"channel": "more"}) + `"}}`))
		if got := strings.Join(renewing.Take(), "\n"); strings.Contains(got, "error") {
			t.Errorf("renewed: %s", got)
		}
		n.clock.Advance(3 * wheelSlot)
		idle.WantClosed(t, "behind its time", answer.DisconnectExpired)
		renewing.WantOpen(t, "with a new token")
		n.clock.Advance(time.Minute + time.Duration(tt.times)*n.timing.Refresh - 8*wheelSlot) // exp has whole seconds
		renewing.Want(t, "with a new token")
		renewing.WantOpen(t, "with a new token")
		n.clock.Advance(8 * wheelSlot)
		renewing.WantClosed(t, "when that has expired, too", answer.DisconnectExpired)
	}
}

// A subscription whose token is not renewed ends; that of a client which only receives does so at
// its time, because such a client sends no token.
func TestSubscriptionTokensOfALateNode(t *testing.T) {
	n := newTestNode(t, withTokens, func(c *Config) { c.Late = func() time.Duration { return time.Second } })
	n.timing.Ping = time.Hour
	c := n.dial()
	c.connect(sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann"}))
	token := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann", "channel": "more",
		"exp": n.clock.Now().Add(time.Minute).Unix()})
	c.frame([]byte(`{"id":3,"subscribe":{"channel":"more","token":"` + token + `"}}`))
	c.Take()
	n.clock.Advance(time.Minute + 2*n.timing.Refresh - wheelSlot)
	c.Want(t, "before the end of its time")
	n.clock.Advance(3 * wheelSlot)
	c.Want(t, "behind its time",
		`{"push":{"channel":"more","unsubscribe":{"code":2501,"reason":"subscription expired"}}}`)
	c.WantOpen(t, "without the subscription")
}
