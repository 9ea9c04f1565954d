package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/strict"
)

// A Config names the backend's addresses. An empty one means that there is no such hook.
type Config struct {
	Connect, Refresh, Subscribe, SubRefresh, Publish, RPC string

	// Headers are the fields of the client's HTTP request that the backend gets, such as Cookie.
	Headers []string
	// Timeout is how long the backend may take, default 1 s, the wait for AtOnce included. After it
	// the client is answered 100 "internal server error", which is temporary.
	Timeout time.Duration
	// AtOnce is how many requests may run at the same time, default 100. Others wait.
	AtOnce int
	// Answer is the size of the backend's answer in bytes, default 1 MiB. A larger one fails.
	Answer int
	// Transport sends the requests. Default: an http.Transport with as many connections as AtOnce.
	Transport http.RoundTripper
}

// Apply sets the hooks of to. It fails for an address that is no URL.
func (c Config) Apply(to *push.Config) error {
	if !c.InUse() {
		return nil
	}
	p, err := c.proxy()
	if err != nil {
		return err
	}
	to.Hooks.Headers, to.Hooks.AtOnce = c.Headers, p.AtOnce
	if c.Connect != "" {
		to.Hooks.Connect = p.connect
	}
	if c.Refresh != "" {
		to.Hooks.Refresh = p.refresh
	}
	if c.Subscribe != "" {
		to.Hooks.Subscribe = p.subscribe
	}
	if c.SubRefresh != "" {
		to.Hooks.SubRefresh = p.subRefresh
	}
	if c.Publish != "" {
		to.Hooks.Publish = p.publish
	}
	if c.RPC != "" {
		to.RPC = p.rpc
	}
	return nil
}

// InUse reports whether there is any hook.
func (c Config) InUse() bool { return strings.Join(c.addresses(), "") != "" }

func (c Config) addresses() []string {
	return []string{c.Connect, c.Refresh, c.Subscribe, c.SubRefresh, c.Publish, c.RPC}
}

// A proxy sends requests to the backend.
type proxy struct {
	Config
	client http.Client
	slots  chan struct{} // one for each request that runs
}

func (c Config) proxy() (*proxy, error) {
	var wrong []error
	for _, address := range c.addresses() {
		u, err := url.Parse(address)
		if address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			wrong = append(wrong, fmt.Errorf("proxy: %q is no address of a backend: write http://HOST/PATH", address))
		}
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Second
	}
	if c.AtOnce <= 0 {
		c.AtOnce = 100
	}
	if c.Answer <= 0 {
		c.Answer = 1 << 20
	}
	if c.Transport == nil {
		c.Transport = &http.Transport{MaxConnsPerHost: c.AtOnce, MaxIdleConnsPerHost: c.AtOnce,
			IdleConnTimeout: 90 * time.Second}
	}
	p := &proxy{Config: c, slots: make(chan struct{}, c.AtOnce)}
	// the address is the operator's: an answer must not lead elsewhere
	p.client = http.Client{Transport: c.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return p, errors.Join(wrong...)
}

// errBusy is the answer when AtOnce requests run for the whole Timeout.
var errBusy = push.Error{Code: 111, Message: "too many requests", Temporary: true}

// call asks the backend, and decodes its result into result. A refusal is a push.Error or a
// push.Disconnect.
func (p *proxy) call(ctx context.Context, address string, client push.Caller, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return errBusy
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	for name, values := range client.Header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := p.client.Do(request)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	defer answer.Body.Close()
	return p.read(address, answer, result)
}

// read decodes the backend's answer.
func (p *proxy) read(address string, from *http.Response, result any) error {
	text, err := io.ReadAll(io.LimitReader(from.Body, int64(p.Answer)+1))
	switch {
	case err != nil:
		return fmt.Errorf("proxy: %w", err)
	case len(text) > p.Answer:
		return fmt.Errorf("proxy: the answer of %s has more than %d bytes", address, p.Answer)
	case from.StatusCode != http.StatusOK:
		return fmt.Errorf("proxy: %s has answered %s", address, from.Status)
	}
	if err := understand(text, result); err != nil {
		if errors.As(err, new(push.Error)) || errors.As(err, new(push.Disconnect)) {
			return err // what the backend has decided
		}
		return fmt.Errorf("proxy: the answer of %s: %w", address, err)
	}
	return nil
}

// understand reads an answer. It returns nil for a result that is an object, of which result has
// every member; the backend's error, as a push.Error or a push.Disconnect; or why the answer is not
// understood. What is not understood allows nothing.
func understand(text []byte, result any) error {
	var answer struct {
		Result     json.RawMessage  `json:"result"`
		Error      *push.Error      `json:"error"`
		Disconnect *push.Disconnect `json:"disconnect"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	switch {
	case answer.Disconnect != nil:
		if c := answer.Disconnect.Code; c < 3000 || c > 4999 || len(answer.Disconnect.Reason) > maxReason {
			return fmt.Errorf("it disconnects with the code %d: use 4000 to 4999, and a reason of at most %d bytes", c,
				maxReason)
		}
		return *answer.Disconnect
	case answer.Error != nil && answer.Error.Code == 0:
		return errors.New("it has an error without a code: use one from 400 on")
	case answer.Error != nil:
		return *answer.Error
	case len(answer.Result) == 0 || answer.Result[0] != '{':
		return errors.New("it has none of result, error and disconnect as an object: " +
			`answer {"result": {}} to allow what was asked`)
	}
	err := strict.Unmarshal(text, &answer)
	if err == nil {
		err = strict.Unmarshal(answer.Result, result)
	}
	if unknown := new(strict.UnknownError); errors.As(err, &unknown) {
		return unserved(unknown)
	}
	return err
}

// unserved returns the error for a member that would have no effect, with what to do instead.
func unserved(unknown *strict.UnknownError) error {
	switch unknown.Path[strings.LastIndexByte(unknown.Path, '.')+1:] {
	case "override":
		return fmt.Errorf("%w: set the rules of the namespace", unknown)
	case "data", "b64data":
		return fmt.Errorf("%w there: put it into info, or publish it", unknown)
	}
	return unknown
}

const maxReason = 123
