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

// An option is one thing that serve can be told: by the flag of that name, by the environment, or
// by a file. The README's table is this list; a test holds the two together.
type option struct {
	name     string
	standard string              // the default, as it would be written
	usage    string              // its first word in backquotes stands for the value
	field    func(*settings) any // where it goes: see assign
}

// options are all of them but --config, which cannot stand in a file, and --check, which is a
// question and no setting.
var options = []option{
	{"listen", "127.0.0.1:8000",
		"`ADDRESS` to listen on: `HOST:PORT`, `unix:PATH`, or `fd:NAME` for a socket that systemd passes",
		func(s *settings) any { return &s.listen }},
	{"admin-listen", "", "`ADDRESS` for the API, the metrics and the console, which `--listen` then does not serve",
		func(s *settings) any { return &s.adminListen }},
	{"socket-mode", "0660", "`MODE` of the unix sockets that the server makes, as for chmod: which users may connect",
		func(s *settings) any { return &s.socketMode }},
	{"tls-cert", "", "`FILE` with the certificate and its chain (PEM), to serve HTTPS; read again on SIGHUP and " +
		"when it changes", func(s *settings) any { return &s.tlsCert }},
	{"tls-key", "", "`FILE` with the certificate's key (PEM)", func(s *settings) any { return &s.tlsKey }},
	{"proxy-protocol-from", "",
		"`CIDR` of load balancers whose connections to `--listen` begin with a PROXY header; repeatable",
		func(s *settings) any { return &s.balancers }},
	{"api-key", "", "`KEY` that publishers send in `X-API-Key`", func(s *settings) any { return &s.push.APIKey }},
	{"token-secret", "", "`SECRET` that signs the tokens of clients: JWT, HS256, with `sub` and `exp`",
		func(s *settings) any { return &s.push.TokenSecret }},
	{"console-key", "", "`KEY` that the console asks for; without one, the API key",
		func(s *settings) any { return &s.push.ConsoleKey }},
	{"disable-console", "false", "serve no console", func(s *settings) any { return &s.push.DisableConsole }},
	{"allowed-origin", "", "`ORIGIN` of pages on other servers that may connect; `*` stands for any part; repeatable",
		func(s *settings) any { return &s.push.AllowedOrigins }},
	{"namespace", "", "`RULES` of the channels `NAME:…`, as in `name=chat history-size=100 recovery`; repeatable",
		func(s *settings) any { return &s.push.Namespaces }},
	{"deny-client-publish", "false", "let only the HTTP API publish",
		func(s *settings) any { return &s.push.DenyClientPublish }},
	{"queue-limit", "1MiB", "`BYTES` that may wait for one client before it is disconnected as slow",
		func(s *settings) any { return &s.push.Limits.Queue }},
	{"publication-limit", "256KiB", "`BYTES` of the largest publication",
		func(s *settings) any { return &s.push.Limits.Publication }},
	{"channel-limit", "128", "`COUNT` of channels for one client",
		func(s *settings) any { return &s.push.Limits.Channels }},
	{"connection-limit", "0",
		"`COUNT` of connections at most; further ones wait until one closes; 0: as many as the limit on descriptors " +
			"allows", func(s *settings) any { return &s.engine.MaxConns }},
	{"history-limit", "256MiB", "`BYTES` of memory for the histories of all channels",
		func(s *settings) any { return &s.push.Limits.HistoryBytes }},
	{"history-channel-limit", "100000", "`COUNT` of channels that may have a history",
		func(s *settings) any { return &s.push.Limits.HistoryChannels }},
	{"ping-interval", "25s", "`TIME` between two pings to a client, in whole seconds",
		func(s *settings) any { return &s.push.Timing.Ping }},
	{"shutdown-timeout", "15s", "`TIME` for clients to receive what is queued for them when the server ends",
		func(s *settings) any { return &s.shutdownTimeout }},
	{"loops", "0", "`COUNT` of event loops, at most 255; 0: half as many as processors, at least one",
		func(s *settings) any { return &s.engine.Loops }},
	{"driver", "", "`NAME` of the engine's driver: `epoll`, `kqueue` or `std`; empty: the best one of the system",
		func(s *settings) any { return &s.engine.Driver }},
	{"log-format", "text", "`FORMAT` of the log: `text` or `json`", func(s *settings) any { return &s.logFormat }},
	{"log-level", "info", "`LEVEL` of the log: `debug`, `info`, `warn` or `error`",
		func(s *settings) any { return &s.logLevel }},
}

// zeroMeans are the options of which 0 is a meaning and no mistake.
var zeroMeans = map[string]bool{"connection-limit": true, "loops": true}

func (o option) env() string {
	return "MYRIAD_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

// repeatable tells whether the option may be given more than once, or be a list.
func (o option) repeatable() bool {
	switch o.field(new(settings)).(type) {
	case *[]string, *[]netip.Prefix, *[]push.Namespace:
		return true
	}
	return false
}

// separator stands between several values in one text, as in the environment: there is only one of
// a variable.
func (o option) separator() string {
	if o.name == "namespace" {
		return ";"
	}
	return ","
}

// isSwitch tells whether the option is on when it is named, and needs no value.
func (o option) isSwitch() bool {
	_, is := o.field(new(settings)).(*bool)
	return is
}

// isMode reports whether the option is the permissions of a file.
func (o option) isMode() bool {
	_, is := o.field(new(settings)).(*fileMode)
	return is
}

// flag is what the CLI library reads. Values are read as text here, and understood in assign, so
// that what is wrong with one is said in the same words wherever it comes from.
func (o option) flag() cli.Flag {
	usage, sources := o.usage, cli.EnvVars(o.env())
	if head, rest, ok := strings.Cut(usage, "` "); ok { // the library takes the first word in backquotes for the value
		usage = head + "` " + strings.ReplaceAll(rest, "`", "")
	}
	switch {
	case o.isSwitch():
		return &cli.BoolFlag{Name: o.name, Usage: usage, Sources: sources}
	case o.repeatable():
		return &cli.StringSliceFlag{Name: o.name, Usage: usage, Sources: sources}
	}
	return &cli.StringFlag{Name: o.name, Value: o.standard, Usage: usage, Sources: sources, HideDefault: o.standard == ""}
}

// assign sets the option's field to what text says, or appends it for an option that is repeatable.
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
		panic(fmt.Sprintf("myriad: nothing reads a field of type %T", field))
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

// parseNetwork reads a network, or an address for a network of its own.
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

// parseNumber reads a count, or a size in bytes: with a unit if there is one.
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

// sizeText is n bytes as parseNumber reads them, with the largest unit that divides n.
func sizeText(n int) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if n > 0 && n%units[unit] == 0 {
			return strconv.Itoa(n/units[unit]) + unit
		}
	}
	return strconv.Itoa(n)
}

// maxNumber is 1 TiB, or what an int holds where it is less.
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

func parseLevel(level *slog.Level, text string) error {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	found, ok := levels[text]
	if !ok {
		return errors.New("write debug, info, warn or error")
	}
	*level = found
	return nil
}

// A logFormat is how lines of the log are written.
type logFormat string

func parseLogFormat(text string) (logFormat, error) {
	if text != "text" && text != "json" {
		return "", errors.New("write text or json")
	}
	return logFormat(text), nil
}
