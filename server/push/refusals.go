package push

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A refusal is why the server has refused a request or a client's command.
type refusal uint8

const (
	refusedKey        refusal = iota // X-API-Key is missing or wrong
	refusedOrigin                    // a page of a site that is not allowed
	refusedNoToken                   // the server requires a token, and the client has none
	refusedToken                     // a token that is not valid
	refusedExpired                   // a token that was valid once
	refusedPermission                // the token, or the rules of the namespace, do not allow it
	refusedFrame                     // a message that breaks the client protocol or its limits
	refusedRate                      // above one of Config.Rates
	refusalReasons
)

var refusalNames = [refusalReasons]string{
	"api_key", "origin", "no_token", "token", "token_expired", "permission", "protocol",
	"rate",
}

func (r refusal) String() string { return refusalNames[r] }

// maxRefusalLines is how many refusals the log gets in one period of refusalPeriod. More are
// counted, so that an attacker cannot fill the disk.
const (
	maxRefusalLines = 10
	refusalPeriod   = time.Second
)

// refusals counts refusals, and bounds their lines in the log. Any goroutine may call it.
type refusals struct {
	counts [refusalReasons]atomic.Uint64

	mu      sync.Mutex
	begin   time.Time // of the period
	lines   int       // in the period
	omitted int       // since the last line
}

// add counts a refusal. It reports whether the log has room for it, and how many lines it had no
// room for before.
func (r *refusals) add(why refusal, now time.Time) (log bool, omitted int) {
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

// refused counts a refusal and logs it. details are further attributes of the line.
func (n *node) refused(why refusal, remote string, details ...any) {
	log, omitted := n.refusals.add(why, n.clock.Now())
	if !log {
		return
	}
	line := append([]any{"reason", why.String(), "remote", remote}, details...)
	if omitted > 0 {
		line = append(line, "omitted", omitted)
	}
	n.log.Info("push: refused", line...)
}

// refusedRequest is refused for a request that gets an error response.
func (n *node) refusedRequest(why refusal, r *http.Request, details ...any) {
	n.refused(why, r.RemoteAddr, append([]any{"path", r.URL.Path}, details...)...)
}

// oneLine returns the text of err without the line breaks of errors.Join.
func oneLine(err error) string { return strings.ReplaceAll(fmt.Sprint(err), "\n", ": ") }

var refusalsDesc = prometheus.NewDesc("myriad_refusals_total",
	"Requests and clients' commands that were refused, by reason.", []string{"reason"}, nil)

func (r *refusals) Describe(descs chan<- *prometheus.Desc) { descs <- refusalsDesc }

func (r *refusals) Collect(metrics chan<- prometheus.Metric) {
	for why := range refusalReasons {
		metrics <- prometheus.MustNewConstMetric(refusalsDesc, prometheus.CounterValue,
			float64(r.counts[why].Load()), why.String())
	}
}
