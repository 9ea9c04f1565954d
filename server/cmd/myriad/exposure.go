package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// addresses are what the server listens on.
type addresses struct {
	public *address
	admin  *address // nil: public serves the API, the metrics and the console too
}

func (s settings) addresses() (all addresses, err error) {
	all.public, err = parseAddress("--listen", s.listen)
	if s.adminListen == "" {
		return all, err
	}
	admin, wrong := parseAddress("--admin-listen", s.adminListen)
	all.admin = admin
	if wrong == nil && err == nil && admin.text == all.public.text && !strings.HasSuffix(admin.text, ":0") {
		wrong = admin.wrong("--listen has the same address: give it another, or leave it out")
	}
	return all, errors.Join(err, wrong)
}

// list is those that there are.
func (all addresses) list() []*address {
	if all.admin == nil {
		return []*address{all.public}
	}
	return []*address{all.public, all.admin}
}

// apiAddress is where the API is served.
func (all addresses) apiAddress() *address {
	if all.admin == nil {
		return all.public
	}
	return all.admin
}

// checkExposure decides whether a server may start on the addresses. On a loopback address or a
// unix socket, which only programs on this machine reach, nothing needs to be set: without a key
// and a secret it is in development mode. Where other machines can reach it, it takes a secret for
// clients, and a key for the API, because a push server to which every machine can publish is an
// open relay.
func (all addresses) checkExposure(apiKey, tokenSecret string) (development bool, err error) {
	missing := make(map[*address][]string)
	if api := all.apiAddress(); apiKey == "" && api.isExposed() {
		missing[api] = append(missing[api], "--api-key (MYRIAD_API_KEY), which publishers send in X-API-Key")
	}
	if tokenSecret == "" && all.public.isExposed() {
		missing[all.public] = append(missing[all.public],
			"--token-secret (MYRIAD_TOKEN_SECRET), which signs the tokens of clients")
	}
	var wrong []error
	for _, a := range all.list() {
		if missing[a] != nil {
			wrong = append(wrong, fmt.Errorf("%s %s can be reached from other machines: set %s; or listen on 127.0.0.1",
				a.option, a.text, strings.Join(missing[a], ", and ")))
		}
	}
	return wrong == nil && apiKey == "" && tokenSecret == "", errors.Join(wrong...)
}

// isLoopback does not ask a resolver: of names only localhost is known to stay on this machine (RFC
// 6761 §6.3).
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
