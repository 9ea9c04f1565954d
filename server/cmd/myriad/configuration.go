package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/urfave/cli/v3"
)

// settings are what flags, environment and file say together.
type settings struct {
	listen          string
	adminListen     string         // empty: none
	socketMode      fileMode       // of unix sockets
	tlsCert, tlsKey string         // files; empty: no TLS
	balancers       []netip.Prefix // of listen alone; nil: none
	shutdownTimeout time.Duration
	logFormat       logFormat
	logLevel        slog.Level
	engine          myriad.Config
	push            push.Config

	// No option sets these.
	readTimeout  time.Duration
	writeTimeout time.Duration
	log          *slog.Logger
	readable     string // the configuration file, if it holds secrets and everybody on this machine may read it
}

// configure reads all three: a flag counts before the environment, that before the file, and that
// before the default. It tells everything that is wrong, not only the first.
func configure(c *cli.Command, environ []string, stderr io.Writer) (settings, error) {
	s := settings{readTimeout: readTimeout, writeTimeout: writeTimeout}
	wrong := []error{checkEnvironment(environ)}
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
	if file.tellsSecrets() {
		s.readable = file.name
	}
	s.log = newLogger(s, stderr)
	return s, errors.Join(wrong...)
}

// given is what a flag or the environment says.
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

// written is what the file says.
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

// complain says of what is wrong where it was read. err may be nil.
func complain(err error, from, text string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s is %q: %w", from, text, err)
}

func newLogger(s settings, stderr io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.logLevel}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(stderr, o))
	}
	return slog.New(slog.NewTextHandler(stderr, o))
}

// checkEnvironment finds misspelt variables. Others that begin as ours do are let be, because they
// may be somebody else's: Kubernetes sets MYRIAD_PORT for a service of that name.
func checkEnvironment(environ []string) error {
	names := []string{"MYRIAD_CONFIG"}
	for _, o := range options {
		names = append(names, o.env())
	}
	var wrong []error
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if near := nearest(name, names); strings.HasPrefix(name, "MYRIAD_") && near != "" && near != name &&
			distance(name, near) <= 2 {
			wrong = append(wrong, fmt.Errorf("the environment has %s, which means nothing: did you mean %s?", name,
				near))
		}
	}
	return errors.Join(wrong...)
}
