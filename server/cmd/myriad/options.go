package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/urfave/cli/v3"
)

// An option is a setting of serve. A flag, the environment or the configuration file sets it. A
// test compares this list with the guide's table.
type option struct {
	name     string
	standard string              // the default, in the notation of the flag
	usage    string              // the first word in backquotes names the value
	field    func(*settings) any // the field that assign sets
}

// options are all settings. --config and --check are not among them, because a file cannot set
// them.
var options = []option{
	{"listen", "127.0.0.1:8000",
		"`ADDRESS` to listen on: `HOST:PORT`, `unix:PATH`, or `fd:NAME` for a socket that systemd passes",
		func(s *settings) any { return &s.listen }},
	{"admin-listen", "", "`ADDRESS` for the API, the metrics and the console, which `--listen` then does not serve",
		func(s *settings) any { return &s.adminListen }},
	{"redis-listen", "",
		"`ADDRESS` for clients of Redis, which publish and subscribe there: `HOST:PORT` or `unix:PATH`",
		func(s *settings) any { return &s.redisListen }},
	{"socket-mode", "0660", "`MODE` of the unix sockets that the server makes, as for chmod: which users may connect",
		func(s *settings) any { return &s.socketMode }},
	{"tls-cert", "", "`FILE` with the certificate and its chain (PEM), to serve HTTPS; read again on SIGHUP and " +
		"when it changes", func(s *settings) any { return &s.tlsCert }},
	{"tls-key", "", "`FILE` with the certificate's key (PEM)", func(s *settings) any { return &s.tlsKey }},
	{"proxy-protocol-from", "",
		"`CIDR` of load balancers whose connections to `--listen` begin with a PROXY header; repeatable",
		func(s *settings) any { return &s.balancers }},
	{"api-key", "", "`KEY` that publishers send in `X-API-Key`", func(s *settings) any { return &s.push.APIKey }},
	{"token-secret", "",
		"`SECRET` that signs the tokens of clients: JWT, HS256, HS384 or HS512, with `sub` and usually `exp`",
		func(s *settings) any { return &s.push.TokenSecret }},
	{"token-key", "", "`FILE` with public keys of tokens (PEM): RS256 to PS512, ES256, ES384, ES512 or EdDSA; " +
		"repeatable",
		func(s *settings) any { return &s.tokenKeys }},
	{"token-jwks-url", "", "`URL` of a JSON Web Key Set with public keys of tokens: https, or http on this machine",
		func(s *settings) any { return &s.push.TokenKeysURL }},
	{"token-issuer", "", "`ISSUER` that the claim `iss` of tokens must name",
		func(s *settings) any { return &s.push.TokenIssuer }},
	{"token-audience", "", "`AUDIENCE` that the claim `aud` of tokens must have",
		func(s *settings) any { return &s.push.TokenAudience }},
	{"console-key", "", "`KEY` that the console asks for; without one, the API key",
		func(s *settings) any { return &s.push.ConsoleKey }},
	{"disable-console", "false", "serve no console", func(s *settings) any { return &s.push.DisableConsole }},
	{"allowed-origin", "", "`ORIGIN` of pages on other servers that may connect; `*` stands for any part; repeatable",
		func(s *settings) any { return &s.push.AllowedOrigins }},
	{"namespace", "", "`RULES` of the channels `NAME:…`, as in `name=chat history-size=100 recovery`; repeatable",
		func(s *settings) any { return &s.push.Namespaces }},
	{"deny-client-publish", "false", "let only the HTTP API publish",
		func(s *settings) any { return &s.push.DenyClientPublish }},
	{"proxy-connect", "", "`URL` of a backend that says who a client is that connects without a token",
		func(s *settings) any { return &s.proxy.Connect }},
	{"proxy-refresh", "", "`URL` of a backend that says whether such a connection goes on when it expires",
		func(s *settings) any { return &s.proxy.Refresh }},
	{"proxy-subscribe", "",
		"`URL` of a backend that decides about subscriptions, for namespaces with `subscribe-proxy`",
		func(s *settings) any { return &s.proxy.Subscribe }},
	{"proxy-sub-refresh", "", "`URL` of a backend that says whether such a subscription goes on when it expires, for " +
		"namespaces with `sub-refresh-proxy`", func(s *settings) any { return &s.proxy.SubRefresh }},
	{"proxy-publish", "", "`URL` of a backend that decides about publications, for namespaces with `publish-proxy`",
		func(s *settings) any { return &s.proxy.Publish }},
	{"proxy-rpc", "", "`URL` of a backend that answers calls of clients",
		func(s *settings) any { return &s.proxy.RPC }},
	{"proxy-header", "",
		"`NAME` of a field of the client's request that the backend gets, as in `Cookie`; repeatable",
		func(s *settings) any { return &s.proxy.Headers }},
	{"proxy-timeout", "1s", "`TIME` for the backend to answer", func(s *settings) any { return &s.proxy.Timeout }},
	{"proxy-at-once", "100", "`COUNT` of requests to the backend at the same time; others wait",
		func(s *settings) any { return &s.proxy.AtOnce }},
	{"mercure-anonymous", "false", "let subscribers of the Mercure hub have public updates without a token",
		func(s *settings) any { return &s.doors.Mercure.Anonymous }},
	{"mercure-publisher-secret", "",
		"`SECRET` that signs the tokens of Mercure's publishers; without one, what signs those of clients",
		func(s *settings) any { return &s.doors.Mercure.PublisherSecret }},
	{"mercure-subscriptions", "false", "list and announce who subscribes to the Mercure hub",
		func(s *settings) any { return &s.doors.Mercure.Subscriptions }},
	{"mercure-history-size", "1000", "`COUNT` of updates that the Mercure hub keeps, at most 65536",
		func(s *settings) any { return &s.doors.Mercure.HistorySize }},
	{"mercure-history-age", "1h", "`TIME` for which it keeps them",
		func(s *settings) any { return &s.doors.Mercure.HistoryAge }},
	{"queue-limit", "1MiB", "`BYTES` that may wait for one client before it is disconnected as slow",
		func(s *settings) any { return &s.push.Limits.Queue }},
	{"publication-limit", "256KiB", "`BYTES` of the largest publication",
		func(s *settings) any { return &s.push.Limits.Publication }},
	{"channel-limit", "128", "`COUNT` of channels for one client",
		func(s *settings) any { return &s.push.Limits.Channels }},
	{"connection-limit", "0",
		"`COUNT` of connections at most; further ones wait until one closes; 0: as many as the limit on descriptors " +
			"allows", func(s *settings) any { return &s.engine.MaxConns }},
	{"user-connection-rate", "",
		"`COUNT/TIME` of connections that each user may open, as in `10/1m`; without it, no limit",
		func(s *settings) any { return &s.push.Rates.UserConnections }},
	{"user-subscription-rate", "",
		"`COUNT/TIME` of channels that clients of each user may subscribe to, as in `10/1m`; without it, no limit",
		func(s *settings) any { return &s.push.Rates.UserSubscriptions }},
	{"user-publication-rate", "",
		"`COUNT/TIME` of publications that clients of each user may make, as in `10/1m`; without it, no limit",
		func(s *settings) any { return &s.push.Rates.UserPublications }},
	{"address-connection-rate", "",
		"`COUNT/TIME` of connections that each address may open, as in `10/1m`; without it, no limit",
		func(s *settings) any { return &s.push.Rates.AddressConnections }},
	{"address-subscription-rate", "",
		"`COUNT/TIME` of channels that clients of each address may subscribe to, as in `10/1m`; without it, no limit",
		func(s *settings) any { return &s.push.Rates.AddressSubscriptions }},
	{"address-publication-rate", "",
		"`COUNT/TIME` of publications that clients of each address may make, as in `10/1m`; without it, no limit",
		func(s *settings) any { return &s.push.Rates.AddressPublications }},
	{"user-command-rate", "",
		"`COUNT/TIME` of other commands of clients of each user: history, presence, rpc, refresh and their like; " +
			"without it, no limit", func(s *settings) any { return &s.push.Rates.UserCommands }},
	{"address-command-rate", "", "`COUNT/TIME` of such commands of clients of each address; without it, no limit",
		func(s *settings) any { return &s.push.Rates.AddressCommands }},
	{"address-call-rate", "",
		"`COUNT/TIME` of requests to the API from each address; without it, no limit",
		func(s *settings) any { return &s.push.Rates.AddressCalls }},
	{"history-limit", "256MiB", "`BYTES` of memory for the histories of all channels",
		func(s *settings) any { return &s.push.Limits.HistoryBytes }},
	{"history-channel-limit", "100000", "`COUNT` of channels that may have a history",
		func(s *settings) any { return &s.push.Limits.HistoryChannels }},
	{"ping-interval", "25s", "`TIME` between two pings to a client, in whole seconds",
		func(s *settings) any { return &s.push.Timing.Ping }},
	{"pong-timeout", "", "`TIME` for a client to answer a ping; without one, 2/5 of `--ping-interval`, at most 10s",
		func(s *settings) any { return &s.push.Timing.Pong }},
	{"drain-delay", "",
		"`TIME` for which a server that is to end still serves, and only `/health` answers 503, so that load " +
			"balancers send new clients elsewhere first; without one, it ends at once",
		func(s *settings) any { return &s.drainDelay }},
	{"shutdown-timeout", "15s", "`TIME` for clients to receive what is queued for them when the server ends",
		func(s *settings) any { return &s.shutdownTimeout }},
	{"handover", "",
		"`PATH` of a unix socket by which a new server finds this one and takes over from it, and by which " +
			"`myriad upgrade` asks for a new one", func(s *settings) any { return &s.handover }},
	{"handover-stay", "false", "when another server has taken over by --handover, stay until SIGTERM: for what " +
		"restarts a server that ends", func(s *settings) any { return &s.handoverStay }},
	{"handover-wait", "5s", "`TIME` for connections that are in use to follow to a process that takes over",
		func(s *settings) any { return &s.handoverWait }},
	{"loops", "0", "`COUNT` of event loops, at most 255; 0: half as many as processors, at least one",
		func(s *settings) any { return &s.engine.Loops }},
	{"driver", "", "`NAME` of the engine's driver: `epoll`, `uring`, `kqueue` or `std`; empty: the best one of the " +
		"system",
		func(s *settings) any { return &s.engine.Driver }},
	{"cluster-listen", "", "`ADDRESS` for the other nodes of a cluster: `HOST:PORT`, as in `10.0.0.1:6222`",
		func(s *settings) any { return &s.cluster.listen }},
	{"cluster-route", "", "`ADDRESS` of another node's `--cluster-listen`; one that is up is enough; repeatable",
		func(s *settings) any { return &s.cluster.routes }},
	{"cluster-secret", "", "`SECRET` that nodes show each other", func(s *settings) any { return &s.cluster.secret }},
	{"cluster-cert", "", "`FILE` with this node's certificate for other nodes (PEM)",
		func(s *settings) any { return &s.cluster.cert }},
	{"cluster-key", "", "`FILE` with its key (PEM)", func(s *settings) any { return &s.cluster.key }},
	{"cluster-ca", "", "`FILE` with the authority that signs the certificates of nodes (PEM)",
		func(s *settings) any { return &s.cluster.ca }},
	{"cluster-sync", "always",
		"`TIME` between two syncs of the histories of all namespaces to disk, or `always`: before a " +
			"publication is acknowledged", func(s *settings) any { return &s.cluster.sync }},
	{"node", "", "`NAME` of this node, which no other has; without one, the machine's",
		func(s *settings) any { return &s.cluster.node }},
	{"data", "", "`FOLDER` where this node stores histories", func(s *settings) any { return &s.cluster.data }},
	{"nats", "", "`URL` of an external NATS with JetStream that connects the nodes, instead of `--cluster-listen`",
		func(s *settings) any { return &s.cluster.nats }},
	{"log-format", "text", "`FORMAT` of the log: `text` or `json`", func(s *settings) any { return &s.logFormat }},
	{"log-level", "info", "`LEVEL` of the log: `debug`, `info`, `warn` or `error`",
		func(s *settings) any { return &s.logLevel }},
}

// zeroMeans are the options that accept 0.
var zeroMeans = map[string]bool{"connection-limit": true, "loops": true}

func (o option) env() string {
	return "MYRIAD_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

// repeatable reports whether the option may be repeated, or be a list.
func (o option) repeatable() bool {
	switch o.field(new(settings)).(type) {
	case *[]string, *[]netip.Prefix, *[]push.Namespace:
		return true
	}
	return false
}

// separator separates several values in one text, for instance in a variable of the environment.
func (o option) separator() string {
	if o.name == "namespace" {
		return ";"
	}
	return ","
}

// isSwitch reports whether the option is boolean: named without a value, it is on.
func (o option) isSwitch() bool {
	_, is := o.field(new(settings)).(*bool)
	return is
}

// isMode reports whether the option's value is a file mode.
func (o option) isMode() bool {
	_, is := o.field(new(settings)).(*fileMode)
	return is
}

// flag returns the option's flag for the CLI library. The library reads values as text, and assign
// parses them, so that a mistake gets the same error from each source.
func (o option) flag() cli.Flag {
	usage, sources := o.usage, cli.EnvVars(o.env())
	// the library uses the first word in backquotes as the value's name
	if head, rest, ok := strings.Cut(usage, "` "); ok {
		usage = head + "` " + strings.ReplaceAll(rest, "`", "")
	}
	switch {
	case o.isSwitch():
		return &cli.BoolFlag{Name: o.name, Usage: usage, Sources: sources}
	case o.repeatable():
		return &cli.StringSliceFlag{Name: o.name, Usage: usage, Sources: sources}
	}
	return &cli.StringFlag{Name: o.name, Value: o.standard, Usage: usage, Sources: sources,
		HideDefault: o.standard == ""}
}

// assign parses text and sets the option's field to it. For a repeatable option it appends.
func (o option) assign(s *settings, text string) error {
	return assign(o.field(s), text, zeroMeans[o.name])
}

func assign(field any, text string, zero bool) (err error) {
	switch field := field.(type) {
	case *string:
		*field = text
	case *[]string:
		*field = append(*field, text)
	case *bool:
		*field, err = parseSwitch(text)
	case *int:
		if *field, err = parseNumber(text); err == nil && *field == 0 && !zero {
			err = errors.New("it must not be 0")
		}
	case *time.Duration:
		*field, err = parseTime(text)
	case *push.Rate:
		*field, err = parseRate(text)
	case *slog.Level:
		err = parseLevel(field, text)
	case *logFormat:
		*field, err = parseLogFormat(text)
	case *fileMode:
		*field, err = parseFileMode(text)
	case *[]netip.Prefix:
		var network netip.Prefix
		network, err = parseNetwork(text)
		*field = append(*field, network)
	case *[]push.Namespace:
		var ns push.Namespace
		ns, err = parseNamespace(text)
		*field = append(*field, ns)
	default:
		panic(fmt.Sprintf("myriad: assign does not support fields of type %T", field))
	}
	return err
}

func parseSwitch(text string) (bool, error) {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, errors.New("write true or false")
	}
	return on, nil
}

// parseNetwork parses a network, or an address as a network with one host.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return network, errors.New("write a network or an address, as in 10.0.0.0/8, fd00::/8 or 10.0.0.7")
	}
	return network, nil
}

var units = map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// parseNumber parses a count, or a size in bytes with an optional unit.
func parseNumber(text string) (int, error) {
	digits, factor := text, 1
	for unit, f := range units {
		if rest, ok := strings.CutSuffix(text, unit); ok {
			digits, factor = rest, f
		}
	}
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil:
		return 0, errors.New("write a whole number; a size may have a unit, as in 64KiB, 1MiB or 2GiB")
	case n < 0 || n > maxNumber/factor:
		return 0, fmt.Errorf("write a number from 0 to %d", maxNumber)
	}
	return n * factor, nil
}

// sizeText formats n bytes for parseNumber, with the largest unit that divides n.
func sizeText(n int) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if n > 0 && n%units[unit] == 0 {
			return strconv.Itoa(n/units[unit]) + unit
		}
	}
	return strconv.Itoa(n)
}

// maxNumber is 1 TiB, or the largest int if that is less.
const maxNumber = min(math.MaxInt, 1<<40)

func parseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("write a time with its unit, as in 25s or 1m30s")
	}
	if d <= 0 {
		return 0, errors.New("it must be longer than 0")
	}
	return d, nil
}

// parseRate parses COUNT/TIME.
func parseRate(text string) (r push.Rate, err error) {
	count, per, _ := strings.Cut(text, "/")
	if r.Count, err = strconv.Atoi(count); err != nil {
		return r, errors.New("write a count and a time, as in 10/1s or 100/1m")
	}
	if r.Count < 1 || r.Count > maxRate {
		return r, fmt.Errorf("the count must be positive, and at most %d", maxRate)
	}
	if r.Per, err = parseTime(per); err != nil {
		return r, fmt.Errorf("write a count and a time, as in 10/1s or 100/1m: %w", err)
	}
	return r, nil
}

const maxRate = 1_000_000

func parseLevel(level *slog.Level, text string) error {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
		"error": slog.LevelError}
	found, ok := levels[text]
	if !ok {
		return errors.New("write debug, info, warn or error")
	}
	*level = found
	return nil
}

// A logFormat is the format of the log: text or json.
type logFormat string

func parseLogFormat(text string) (logFormat, error) {
	if text != "text" && text != "json" {
		return "", errors.New("write text or json")
	}
	return logFormat(text), nil
}
