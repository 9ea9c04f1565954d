package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/proxy"
	"github.com/urfave/cli/v3"
)

// settings are the merged values of flags, environment and file.
type settings struct {
	listen          string
	adminListen     string         // empty: none
	redisListen     string         // likewise
	socketMode      fileMode       // of unix sockets
	tlsCert, tlsKey string         // files; empty: no TLS
	balancers       []netip.Prefix // of listen only; nil: none
	tokenKeys       []string       // files
	drainDelay      time.Duration  // 0: none
	shutdownTimeout time.Duration
	logFormat       logFormat
	logLevel        slog.Level
	engine          myriad.Config
	push            push.Config // without Doors
	doors           doors.Config
	proxy           proxy.Config
	cluster         clusterSettings

	// No option sets these.
	readTimeout  time.Duration
	writeTimeout time.Duration
	log          *slog.Logger
	level        *slog.LevelVar // of log

	predecessor *net.UnixConn // to the process whose place this one takes; nil: there is none
	recipient   recipient     // as which the service manager knows this process

	again func() (settings, error) // reads the configuration again

	foreign []string // variables of a container platform whose names are like those of options

	readable string // the configuration file, if it holds secrets and every user of this machine may read it
}

// configure reads all three. A flag overrides the environment, which overrides the file, which
// overrides the default. It reports all mistakes, not only the first.
func configure(c *cli.Command, environ []string, stderr io.Writer) (settings, error) {
	s := settings{readTimeout: readTimeout, writeTimeout: writeTimeout}
	foreign, err := checkEnvironment(environ)
	s.foreign = foreign
	wrong := []error{err}
	file, err := readConfiguration(c.String("config"))
	wrong = append(wrong, err)
	for _, o := range options {
		var texts []string
		from := fmt.Sprintf("--%s (%s)", o.name, o.env())
		switch given, inFile := file.values[o.name]; {
		case c.IsSet(o.name):
			texts = o.given(c)
		case inFile && o.name == "namespace":
			s.push.Namespaces, err = file.namespaces()
			wrong = append(wrong, err)
		case inFile:
			texts, err = o.written(given)
			from = fmt.Sprintf("%s in %s", o.name, file.name)
			wrong = append(wrong, complain(err, from, fmt.Sprint(given)))
		case o.standard != "":
			texts = []string{o.standard}
		}
		for _, text := range texts {
			wrong = append(wrong, complain(o.assign(&s, text), from, text))
		}
	}
	if file.exposesSecrets() {
		s.readable = file.name
	}
	s.level = new(slog.LevelVar)
	s.level.Set(s.logLevel)
	s.log = newLogger(s, stderr)
	return s, errors.Join(wrong...)
}

// readTokenKeys reads the files of --token-key.
func (s *settings) readTokenKeys() error {
	for _, name := range s.tokenKeys {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("--token-key: %w", err)
		}
		s.push.TokenKeys = append(s.push.TokenKeys, string(text))
	}
	return nil
}

// given returns the values from the flag or the environment.
func (o option) given(c *cli.Command) []string {
	switch {
	case o.isSwitch():
		return []string{fmt.Sprint(c.Bool(o.name))}
	case o.repeatable():
		var texts []string
		for _, text := range c.StringSlice(o.name) {
			for part := range strings.SplitSeq(strings.TrimSuffix(text, o.separator()), o.separator()) {
				texts = append(texts, strings.TrimSpace(part))
			}
		}
		return texts
	}
	return []string{c.String(o.name)}
}

// written returns the values from the file.
func (o option) written(given any) ([]string, error) {
	if _, text := given.(string); !text && o.isMode() {
		return nil, errors.New("write it in quotes, as in \"0660\": numbers of TOML are not octal")
	}
	texts, err := textsOf(given)
	if err == nil && len(texts) != 1 && !o.repeatable() {
		return nil, errors.New("write one value")
	}
	return texts, err
}

// complain adds to err where the value was read. err may be nil.
func complain(err error, from, text string) error {
	return eachLine(fmt.Sprintf("%s is %q: ", from, text), err)
}

func newLogger(s settings, stderr io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(stderr, o))
	}
	return slog.New(slog.NewTextHandler(stderr, o))
}

// checkEnvironment reports misspelt variables. It ignores other variables that begin with MYRIAD_,
// because other programs may set them. foreign are those that Kubernetes sets for a service, such
// as MYRIAD_CLUSTER_PORT=tcp://10.0.0.1:6222 for one named myriad-cluster.
func checkEnvironment(environ []string) (foreign []string, err error) {
	names := []string{"MYRIAD_CONFIG"}
	for _, o := range options {
		names = append(names, o.env())
	}
	var wrong []error
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "MYRIAD_") || slices.Contains(names, name) {
			continue
		}
		if isServicePort(name, value) {
			foreign = append(foreign, variable)
			continue
		}
		if near := nearest(name, names); near != "" && distance(name, near) <= 2 {
			wrong = append(wrong, fmt.Errorf("the environment has the unknown variable %s: did you mean %s?", name,
				near))
		}
	}
	return foreign, errors.Join(wrong...)
}

// isServicePort reports whether a variable is one that Kubernetes sets to the address of a service.
func isServicePort(name, value string) bool {
	return strings.HasSuffix(name, "_PORT") && (strings.HasPrefix(value, "tcp://") || strings.HasPrefix(value,
		"udp://"))
}
