package tunnel

import (
	"encoding/base64"
	"net/http"
	"net/url"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
)

// A connect asks by CONNECT.
type connect struct {
	base
	request []byte
	judge   func(*h1.ResponseHead) error
	kept    []byte
	scan    h1.Scan
	interim int // bytes of interim responses
}

// Connect is the handler of a conn to an HTTP proxy, which is sent request. judge decides on the
// answer, whose values are valid until it returns; with nil the tunnel stands.
func Connect(d *Dial, request []byte, judge func(*h1.ResponseHead) error) myriad.Handler {
	return &connect{base: base{Dial: d}, request: request, judge: judge}
}

// BasicAuth is the value of Proxy-Authorization for a proxy's user and password.
func BasicAuth(u *url.Userinfo) string {
	password, _ := u.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password))
}

func (t *connect) Opened(c *myriad.Conn) {
	if !t.open(c) {
		return
	}
	if _, err := c.Write(t.request); err != nil {
		t.fail(c, err)
	}
}

func (t *connect) Received(c *myriad.Conn, p []byte) {
	t.kept = append(t.kept, p...)
	for !t.dead {
		limits := t.Limits
		limits.HeadBytes = max(1, limits.HeadBytes-t.interim)
		ready, err := t.scan.Response(t.kept, limits)
		if err != nil {
			t.fail(c, err)
		}
		if err != nil || !ready {
			return
		}
		var head h1.ResponseHead
		n, err := h1.ParseResponse(t.kept, limits, &head)
		switch {
		case err != nil:
			t.fail(c, err)
			return
		case head.Status >= 200 || head.Status == http.StatusSwitchingProtocols:
			if err = t.judge(&head); err != nil {
				t.fail(c, err)
				return
			}
			t.stands(c, t.kept[n:])
			t.judge, t.kept = nil, nil
			return
		}
		t.kept, t.scan, t.interim = t.kept[n:], h1.Scan{}, t.interim+n
	}
}
