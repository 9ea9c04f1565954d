package natsbus

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// A natsLog passes on what the server reports. Its notices are details to an operator of Myriad.
type natsLog struct {
	log   *slog.Logger
	fatal chan string // has room for one: why the server cannot start

	mu    sync.Mutex
	heard map[mistakeOf]time.Time // when it was reported
}

func (l *natsLog) say(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "nats: "+fmt.Sprintf(format, v...))
}

func (l *natsLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l *natsLog) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Plaintext passwords") { // they are in this process alone
		return
	}
	l.say(slog.LevelWarn, format, v)
}

func (l *natsLog) Errorf(format string, v ...any) {
	level := slog.LevelError
	switch text := fmt.Sprintf(format, v...); {
	case strings.HasPrefix(format, "Error trying to connect to route"): // State shows who is missing
		level = slog.LevelDebug
	case l.explain(text, time.Now()):
		level = slog.LevelDebug
	}
	l.say(level, format, v)
}

// Fatalf implements the logger of NATS. A server that cannot go on says so, and nothing else.
func (l *natsLog) Fatalf(format string, v ...any) {
	l.say(slog.LevelError, format, v)
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
	}
}

func (l *natsLog) Debugf(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l *natsLog) Tracef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// A mistake in the settings of a node shows as an error of NATS, on both sides of each attempt to
// connect. Nodes try every second.
type mistake struct{ sign, means string }

// A mistakeOf names a mistake by its sign, and the host that makes it.
type mistakeOf struct{ sign, host string }

var mistakes = []mistake{
	{"authentication error", "natsbus: this node has refused another one, whose cluster secret is not the same; " +
		"give all nodes the same --cluster-secret (MYRIAD_CLUSTER_SECRET)"},
	{"Route Error 'Authorization Violation'", "natsbus: another node has refused this one, whose cluster secret is " +
		"not the same; give all nodes the same --cluster-secret (MYRIAD_CLUSTER_SECRET)"},
	{"TLS route handshake error", "natsbus: this node and another one cannot agree on TLS; check that the " +
		"--cluster-cert of both is valid, names the host, and is signed by the --cluster-ca of the other"},
}

const (
	// explainAgain is how long a mistake of one host is not reported again.
	explainAgain = time.Minute
	// maxExplained bounds the hosts that are remembered; the mistakes of others are details.
	maxExplained = 64
)

// explain reports what an error of NATS means to the operator. It returns false for other errors.
func (l *natsLog) explain(text string, now time.Time) bool {
	address, detail, _ := strings.Cut(text, " - ")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	for _, m := range mistakes {
		if strings.Contains(text, m.sign) {
			if l.first(mistakeOf{m.sign, host}, now) {
				l.log.Error(m.means, "other", address, "nats", detail)
			}
			return true
		}
	}
	return strings.Contains(text, "Error flushing") && l.mistaken(host) // what was on its way when it was refused
}

// mistaken reports whether a mistake of the host has been reported lately.
func (l *natsLog) mistaken(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other := range l.heard {
		if other.host == host {
			return true
		}
	}
	return false
}

// first reports whether the mistake has not been reported lately.
func (l *natsLog) first(key mistakeOf, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, at := range l.heard {
		if now.Sub(at) >= explainAgain {
			delete(l.heard, other)
		}
	}
	if _, lately := l.heard[key]; lately || len(l.heard) >= maxExplained {
		return false
	}
	if l.heard == nil {
		l.heard = make(map[mistakeOf]time.Time)
	}
	l.heard[key] = now
	return true
}
