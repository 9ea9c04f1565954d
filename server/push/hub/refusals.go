package hub

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Refusal is why the server has refused a request or a client's command.
type Refusal uint8

const (
	RefusedKey        Refusal = iota // X-API-Key is missing or wrong
	RefusedOrigin                    // a page of a site that is not allowed
	RefusedNoToken                   // the server requires a token, and the client has none
	RefusedToken                     // a token that is not valid
	RefusedExpired                   // a token that was valid once
	RefusedPermission                // the token, or the rules of the namespace, do not allow it
	RefusedFrame                     // a message that breaks the client protocol or its limits
	RefusedRate                      // above one of Config.Rates
	RefusedUnknownKey                // a token whose key is not known yet
	RefusedHook                      // a hook has decided so
	RefusedDraining                  // the node shuts down
	RefusedOverload                  // publications, while those before cannot be delivered
	refusalReasons
)

var refusalNames = [refusalReasons]string{
	"api_key", "origin", "no_token", "token", "token_expired", "permission", "protocol",
	"rate", "token_key", "hook", "draining", "overload",
}

func (r Refusal) String() string { return refusalNames[r] }

// maxRefusalLines is how many refusals the log gets in one period of refusalPeriod. More are
// counted, so that an attacker cannot fill the disk.
const (
	maxRefusalLines = 10
	refusalPeriod   = time.Second
)

// refusals counts refusals, and bounds their lines in the log. Any goroutine may call it.
type refusals struct {
	*node
	console bool // there is a console, which shows the latest

	counts [refusalReasons]atomic.Uint64

	mu      sync.Mutex
	begin   time.Time // of the period
	lines   int       // in the period
	omitted int       // since the last line
	last    uint64    // the number of the latest
	kept    []ShownRefusal
}

// HasConsole reports whether the server has a console.
func (r *refusals) HasConsole() bool { return r.console }

// CountRefusal counts a refusal, and logs it with details, which are names and values in turn.
func (r *refusals) CountRefusal(why Refusal, remote string, details ...any) {
	now := r.clock.Now()
	log, omitted := r.add(why, now)
	if !log {
		return
	}
	if r.console {
		r.keep(ShownRefusal{At: now, Reason: why.String(), Remote: remote, Omitted: omitted}, details)
	}
	line := append([]any{"reason", why.String(), "remote", remote}, details...)
	if omitted > 0 {
		line = append(line, "omitted", omitted)
	}
	r.log.Info("push: refused", line...)
}

// count counts a refusal that the log gets no line for: a program makes many of the same in a row.
func (r *refusals) count(why Refusal) { r.counts[why].Add(1) }

// CountRequestRefusal is CountRefusal for a request that gets an error response.
func (r *refusals) CountRequestRefusal(why Refusal, request *http.Request, details ...any) {
	r.CountRefusal(why, request.RemoteAddr, append([]any{"path", request.URL.Path}, details...)...)
}

// add counts a refusal. It reports whether the log has room for it, and how many lines it had no
// room for before.
func (r *refusals) add(why Refusal, now time.Time) (log bool, omitted int) {
	r.counts[why].Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if since := now.Sub(r.begin); since < 0 || since >= refusalPeriod {
		r.begin, r.lines = now, 0
	}
	if r.lines == maxRefusalLines {
		r.omitted++
		return false, 0
	}
	r.lines++
	omitted, r.omitted = r.omitted, 0
	return true, omitted
}

const (
	// keptRefusals is how many refusals the console can show. Those that the log has no room for
	// are not among them.
	keptRefusals = 100
	// refusalBytes bounds the text of one.
	refusalBytes = 500
)

// A ShownRefusal is a refusal as the console shows it, with the values of the line in the log.
type ShownRefusal struct {
	Number  uint64    `json:"number"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
	Remote  string    `json:"remote"`
	Details string    `json:"details"`
	Omitted int       `json:"omitted,omitempty"` // before it
}

// keep adds a refusal to those that the console shows. details are names and values in turn.
func (r *refusals) keep(one ShownRefusal, details []any) {
	var text []string
	for i := 0; i+1 < len(details); i += 2 {
		if value := fmt.Sprint(details[i+1]); value != "" {
			text = append(text, fmt.Sprintf("%v=%s", details[i], value))
		}
	}
	one.Details = strings.ToValidUTF8(strings.Join(text, " "), "?")
	if len(one.Details) > refusalBytes {
		one.Details = strings.ToValidUTF8(one.Details[:refusalBytes], "") + "…"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	one.Number = r.last
	r.show(one)
}

// show adds a refusal, in place of the oldest if there are as many as are kept. The caller holds
// mu.
func (r *refusals) show(one ShownRefusal) {
	if len(r.kept) == keptRefusals {
		r.kept = append(r.kept[:0], r.kept[1:]...)
	}
	r.kept = append(r.kept, one)
}

// Refusals returns how many refusals there have been by their reason. latest are those with a
// number above after, the newest first; last is the number of the last one.
func (r *refusals) Refusals(after uint64) (counts map[string]uint64, latest []ShownRefusal, last uint64) {
	counts = make(map[string]uint64, refusalReasons)
	for why := range refusalReasons {
		counts[why.String()] = r.counts[why].Load()
	}
	latest, last = r.since(after)
	return counts, latest, last
}

// since returns the refusals that are newer than the one with that number, the newest first, and
// the number of the latest.
func (r *refusals) since(number uint64) (list []ShownRefusal, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list = []ShownRefusal{}
	for _, one := range slices.Backward(r.kept) {
		if one.Number > number {
			list = append(list, one)
		}
	}
	return list, r.last
}

// OneLine returns the text of err without the line breaks of errors.Join.
func OneLine(err error) string { return strings.ReplaceAll(fmt.Sprint(err), "\n", ": ") }
