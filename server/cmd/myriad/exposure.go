package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// addresses are the addresses on which the server listens.
type addresses struct {
	public *address
	admin  *address // nil: public also serves the API, the metrics and the console
	redis  *address // nil: there is no door for clients of Redis
}

func (s settings) addresses() (all addresses, err error) {
	all.public, err = parseAddress("--listen", s.listen)
	if s.redisListen != "" {
		redis, wrong := parseAddress("--redis-listen", s.redisListen)
		if wrong == nil && redis.kind == inheritedAddress {
			wrong = redis.wrong("it cannot be inherited: write HOST:PORT or unix:PATH")
		}
		all.redis, err = redis, errors.Join(err, wrong)
	}
	if s.adminListen == "" {
		return all, err
	}
	admin, wrong := parseAddress("--admin-listen", s.adminListen)
	all.admin = admin
	if wrong == nil && err == nil && admin.text == all.public.text && !strings.HasSuffix(admin.text, ":0") {
		wrong = admin.wrong("--listen has the same address: use another one, or omit this option")
	}
	return all, errors.Join(err, wrong)
}

// list returns public, and admin if it is set.
func (all addresses) list() []*address {
	if all.admin == nil {
		return []*address{all.public}
	}
	return []*address{all.public, all.admin}
}

// apiAddress returns the address that serves the API.
func (all addresses) apiAddress() *address {
	if all.admin == nil {
		return all.public
	}
	return all.admin
}

// checkExposure decides whether a server may start on the addresses. Only programs on this machine
// reach a loopback address or a unix socket, so these need no settings; without keys and secrets
// the server runs in development mode. An address that other machines can reach needs a secret for
// clients and a key for the API. Without them the server would be an open relay.
func (all addresses) checkExposure(apiKey string, tokens bool) (development bool, err error) {
	missing := make(map[*address][]string)
	if api := all.apiAddress(); apiKey == "" && api.isExposed() {
		missing[api] = append(missing[api], "--api-key (MYRIAD_API_KEY), which publishers send in X-API-Key")
	}
	if !tokens && all.public.isExposed() {
		missing[all.public] = append(missing[all.public],
			"--token-secret (MYRIAD_TOKEN_SECRET), which signs the tokens of clients")
	}
	listed := all.list()
	if all.redis != nil {
		listed = append(listed, all.redis)
		if (apiKey == "" || !tokens) && all.redis.isExposed() {
			missing[all.redis] = []string{"--api-key (MYRIAD_API_KEY) for publishers and --token-secret " +
				"(MYRIAD_TOKEN_SECRET) for subscribers"}
		}
	}
	var wrong []error
	for _, a := range listed {
		if missing[a] != nil {
			wrong = append(wrong, fmt.Errorf("%s %s can be reached from other machines: set %s; or listen on 127.0.0.1",
				a.option, a.text, strings.Join(missing[a], ", and ")))
		}
	}
	return wrong == nil && apiKey == "" && !tokens, errors.Join(wrong...)
}

// isLoopback reports whether host is a loopback address or localhost. It does not resolve other
// names; only localhost is certain to be this machine (RFC 6761 §6.3).
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
