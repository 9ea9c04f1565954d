package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/urfave/cli/v3"
)

// configured returns the settings that serve would use.
func configured(t *testing.T, environ []string, args ...string) (s settings, err error) {
	t.Helper()
	c := serveCommand(new(bytes.Buffer), new(bytes.Buffer))
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	c.Action = func(_ context.Context, c *cli.Command) error {
		s, err = configure(c, environ, new(bytes.Buffer))
		return nil
	}
	if err := c.Run(t.Context(), append([]string{"serve"}, args...)); err != nil {
		t.Fatal(err)
	}
	return s, err
}

func written(t *testing.T, text string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "myriad.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Every option can be set in each of the three places. A flag overrides the environment, which
// overrides the file.
func TestConfigurationOrder(t *testing.T) {
	samples := map[string][3]string{ // values in flag, environment and file
		"*string": {"one", "two", "three"}, "*[]string": {"one", "two", "three"}, "*int": {"11", "12", "13"},
		"*time.Duration": {"11s", "12s", "13s"}, "*bool": {"true", "true", "true"},
		"*slog.Level":     {"debug", "warn", "error"},
		"*main.logFormat": {"json", "json", "json"}, "*[]policy.Namespace": {"name=one", "name=two", "name=three"},
		"*main.fileMode": {"0600", "0660", "666"}, "*[]netip.Prefix": {"10.0.0.0/8", "fd00::/8", "192.0.2.1"},
		"*policy.Rate": {"11/1s", "12/1m", "13/1h"},
	}
	for _, o := range options {
		kind := fmt.Sprintf("%T", o.field(new(settings)))
		texts, ok := samples[kind]
		if !ok {
			t.Fatalf("--%s has a %s", o.name, kind)
		}
		flag, variable := "--"+o.name+"="+texts[0], o.env()+"="+texts[1]
		line := fmt.Sprintf("%s = %q", o.name, texts[2])
		if o.repeatable() {
			line = fmt.Sprintf("%s = [%q]", o.name, texts[2])
		}
		file := "--config=" + written(t, line)
		for i, from := range []struct {
			environ []string
			args    []string
		}{{[]string{variable}, []string{flag, file}}, {[]string{variable}, []string{file}}, {nil, []string{file}}} {
			t.Run(fmt.Sprint(o.name, i), func(t *testing.T) {
				got, err := configured(t, from.environ, from.args...)
				if err != nil {
					t.Fatal(err)
				}
				var want settings
				if err := o.assign(&want, texts[i]); err != nil {
					t.Fatal(err)
				}
				if show(o.field(&got)) != show(o.field(&want)) {
					t.Errorf("%s, want %s", show(o.field(&got)), show(o.field(&want)))
				}
			})
		}
	}
}

// show returns the value that field points to, as text.
func show(field any) string {
	switch field := field.(type) {
	case *string:
		return *field
	case *[]string:
		return fmt.Sprint(*field)
	case *[]netip.Prefix:
		return fmt.Sprint(*field)
	case *[]push.Namespace:
		return fmt.Sprint(*field)
	case *slog.Level:
		return field.String()
	case *time.Duration:
		return field.String()
	case *int:
		return fmt.Sprint(*field)
	case *bool:
		return fmt.Sprint(*field)
	case *logFormat:
		return string(*field)
	case *fileMode:
		return fmt.Sprintf("%o", *field)
	}
	return fmt.Sprintf("%T", field)
}

// The documented default of an option equals the default in package push.
func TestConfigurationDefaults(t *testing.T) {
	s, err := configured(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.listen != "127.0.0.1:8000" || s.push.Limits.Queue != 1<<20 || s.push.Limits.Publication != 256<<10 ||
		s.push.Limits.Channels != 128 ||
		s.push.Limits.HistoryBytes != 256<<20 || s.push.Limits.HistoryChannels != 100_000 ||
		s.push.Timing.Ping != 25*time.Second ||
		s.shutdownTimeout != 15*time.Second || s.logFormat != "text" || s.logLevel != slog.LevelInfo ||
		s.push.Namespaces != nil {
		t.Errorf("%+v", s)
	}
}

func TestConfigurationNamespaces(t *testing.T) {
	want := []push.Namespace{
		{Name: "chat", HistorySize: 100, HistoryAge: 10 * time.Minute, Recovery: true, Presence: true, JoinLeave: true,
			Publish: push.PublishSubscribers},
		{Slow: push.SlowDropOldest, SlowQueue: 64 << 10, SubscribeToken: true},
	}
	file := written(t, `
[[namespace]]
name = "chat"
history-size = 100
history-age = "10m"
recovery = true
presence = true
join-leave = true
publish = "subscribers"

[[namespace]]
slow = "drop-oldest"
slow-queue = "64KiB"
subscribe-token = true
`)
	for _, args := range [][]string{
		{"--config", file},
		{"--namespace", "name=chat history-size=100 history-age=10m recovery presence join-leave publish=subscribers",
			"--namespace", "slow=drop-oldest slow-queue=65536 subscribe-token=true"},
		nil,
	} {
		var environ []string
		if args == nil { // one variable holds them all
			environ = []string{"MYRIAD_NAMESPACE=name=chat history-size=100 history-age=10m recovery presence " +
				"join-leave publish=subscribers; slow=drop-oldest slow-queue=64KiB subscribe-token;"}
		}
		if s, err := configured(t, environ, args...); err != nil || !slices.Equal(s.push.Namespaces, want) {
			t.Errorf("%q: %+v, %v", args, s.push.Namespaces, err)
		}
	}
}

// A comma separates origins in each of the three places.
func TestConfigurationOrigins(t *testing.T) {
	want := []string{"https://a.example", "https://b.example", "c.example"}
	for _, from := range []struct{ environ, args []string }{
		{[]string{"MYRIAD_ALLOWED_ORIGIN=https://a.example, https://b.example,c.example"}, nil},
		{nil, []string{"--allowed-origin=https://a.example,https://b.example", "--allowed-origin=c.example"}},
	} {
		if s, err := configured(t, from.environ, from.args...); err != nil ||
			!slices.Equal(s.push.AllowedOrigins, want) {
			t.Errorf("%q: %q, %v", from, s.push.AllowedOrigins, err)
		}
	}
}

// The error reports all mistakes, each with its place and what to do.
func TestConfigurationMistakes(t *testing.T) {
	for _, tt := range []struct {
		about   string
		file    string
		environ []string
		args    []string
		want    []string
	}{
		{"keys", "lisen = 'x'\nqueue_limit = 1\nqquxx = 2\n", nil, nil,
			[]string{`unknown key "lisen": did you mean "listen"?`, `"queue_limit": did you mean "queue-limit"?`,
				`unknown key "qquxx": see myriad serve --help`}},
		{"values in the file", "queue-limit = 'many'\nping-interval = 5\nloops = 1.5\nlog-format = ['a', " +
			"'b']\nallowed-origin = [1]\n", nil, nil,
			[]string{`queue-limit in `, `is "many": write a whole number`, `ping-interval in `,
				`"5": write a time with its unit`, "loops in ", "log-format in ", "write one value",
				"write a list of strings"}},
		{"values of flags", "", nil, []string{"--queue-limit=-1", "--channel-limit=0", "--shutdown-timeout=0s",
			"--log-level=loud", "--publication-limit=many"},
			[]string{"--queue-limit (MYRIAD_QUEUE_LIMIT) is \"-1\"",
				"--channel-limit (MYRIAD_CHANNEL_LIMIT) is \"0\": it must not be 0", "longer than 0",
				"debug, info, warn or error", "--publication-limit"}},
		{"the environment", "", []string{"MYRIAD_QEUE_LIMIT=1", "MYRIAD_LISTENS=x", "MYRIAD_PORT=tcp://10.0.0.1:8000",
			"MYRIAD_LOG_FORMAT=xml"}, nil,
			[]string{"did you mean MYRIAD_QUEUE_LIMIT?", "did you mean MYRIAD_LISTEN?",
				`--log-format (MYRIAD_LOG_FORMAT) is "xml": write text or json`}},
		{"namespaces", "[[namespace]]\nnam = 'chat'\nhistory-size = 'x'\n", nil, nil,
			[]string{"[[namespace]] 1 in ", `"nam" is no rule of a namespace: did you mean "name"?`,
				`history-size is "x": write a whole number`}},
		{"options of Centrifugo", "[client.token]\nhmac_secret_key = 's'\n[[namespace]]\n" +
			"allow_subscribe_for_client = true", nil, nil,
			[]string{`unknown key "client": see myriad serve --help; docs/guides/from-centrifugo.md has`,
				`"allow_subscribe_for_client" is no rule of a namespace: docs/guides/push.md lists the rules`}},
		{"namespace by flag", "", nil, []string{"--namespace=name=a name=b", "--namespace=chat"},
			[]string{"name is given twice"}},
		{"one of two namespaces", "", nil, []string{"--namespace=name=a", "--namespace=name=b histori-size=1",
			"--namespace=name=c slw=x"},
			[]string{`--namespace (MYRIAD_NAMESPACE) is "name=b histori-size=1": "histori-size" is no rule`,
				`is "name=c slw=x": "slw" is no rule`}},
		{"commas in a namespace", "", nil, []string{"--namespace=name=chat,history-size=100"},
			[]string{`"name=chat,history-size=100": write spaces`}},
		{"a terabyte and more", "", nil, []string{"--history-limit=1025GiB"},
			[]string{"write a number from 0 to 1099511627776"}},
		{"one namespace", "namespace = 'name=chat'", nil, nil, []string{"neither a list nor [[namespace]]"}},
		{"no TOML", "listen: x", nil, nil, []string{"--config", "line 1"}},
		{"no file", "", nil, []string{"--config=/nowhere/myriad.toml"},
			[]string{"--config", "/nowhere/myriad.toml", "no such file"}},
	} {
		t.Run(tt.about, func(t *testing.T) {
			if tt.file != "" {
				tt.args = append(tt.args, "--config", written(t, tt.file))
			}
			_, err := configured(t, tt.environ, tt.args...)
			if err == nil {
				t.Fatal("the mistakes were accepted")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v\ndoes not say %s", err, part)
				}
			}
			if strings.Contains(err.Error(), "MYRIAD_PORT") {
				t.Errorf("another program's variable was refused: %v", err)
			}
		})
	}
}

// Kubernetes sets MYRIAD_CLUSTER_PORT, and others, for a service that is named myriad-cluster. The
// server starts, and says that it has passed over the first; what looks like an option stays
// refused.
func TestVariablesOfAService(t *testing.T) {
	environ := []string{"MYRIAD_CLUSTER_PORT=tcp://10.0.0.1:6222", "MYRIAD_CLUSTER_SERVICE_HOST=10.0.0.1",
		"MYRIAD_CLUSTER_SERVICE_PORT=6222", "MYRIAD_CLUSTER_PORT_6222_TCP=tcp://10.0.0.1:6222",
		"MYRIAD_CLUSTER_PORT_6222_TCP_PROTO=tcp", "MYRIAD_CLUSTER_PORT_6222_TCP_PORT=6222",
		"MYRIAD_CLUSTER_PORT_6222_TCP_ADDR=10.0.0.1", "MYRIAD_TLS_PORT=udp://10.0.0.1:53"}
	s, err := configured(t, environ)
	if err != nil || len(s.foreign) != 2 {
		t.Errorf("%v, passed over %q", err, s.foreign)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log bytes.Buffer
	if err := run(ctx, []string{"myriad", "serve", "--listen", "127.0.0.1:0"}, &log, &log); err != nil ||
		!strings.Contains(log.String(), "MYRIAD_CLUSTER_PORT=tcp://10.0.0.1:6222") {
		t.Errorf("%v; the log: %s", err, &log)
	}
	for _, variable := range []string{"MYRIAD_CLUSTER_PORT=6222", "MYRIAD_TLS_PORT=x", "MYRIAD_CLUSTER_CERTS=tcp://a",
		"MYRIAD_TLS_PORT=http://10.0.0.1"} {
		name, _, _ := strings.Cut(variable, "=")
		if _, err := configured(t, []string{variable}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", variable, err)
		}
	}
}

func TestCommandLineMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"serve --lsten x":                  "there is no flag --lsten: did you mean --listen?",
		"serve --qqqq":                     "there is no flag --qqqq: see myriad serve --help",
		"--listen x":                       "--listen is a flag of a command: write myriad serve --listen",
		"serve --listen":                   "flag needs an argument: --listen",
		"serve --disable-console=x":        `--disable-console is "x": write true or false`,
		"serv":                             `there is no command "serv": did you mean "serve"?`,
		"qqqq":                             `there is no command "qqqq": see myriad --help`,
		"version 1":                        `version takes no arguments, but got "1"`,
		"serve --check --loops 999":        "--loops 999: there may be at most 255",
		"serve --check --queue-limit 1KiB": "--queue-limit 1KiB is less than --publication-limit 256KiB",
		"serve --check --publication-limit 9MiB --queue-limit 16MiB": "it may be at most 8MiB",
		"serve --check --ping-interval 1500ms":                       "--ping-interval 1.5s: it must be whole seconds",
		"serve --check --ping-interval 9s --pong-timeout 9s":         "--pong-timeout 9s: it must be less than",
		"completion tcsh": `completion takes bash, zsh or fish, not "tcsh"`,
		"--verison": "there is no flag --verison: did you mean " +
			"--version?",
		"serve --check --driver x":           `"x"`,
		"serve --check --namespace name=a:b": `namespace "a:b"`,
		"serve --check --proxy-protocol-from 10.0.0.0/33": `--proxy-protocol-from (MYRIAD_PROXY_PROTOCOL_FROM) ` +
			`is "10.0.0.0/33": write a network or an address`,
		"serve --check --allowed-origin [a": `allowed origin "[a"`,
		"serve --check --allowed-origin https://a.example/": `allowed origin "https://a.example/" is none that a ` +
			`browser sends`,
		"serve --check --allowed-origin a.example/page":       "without a path",
		"serve --check --listen 0.0.0.0:1":                    "MYRIAD_API_KEY",
		"serve --check --ping-interval 1ms":                   "--ping-interval 1ms",
		"serve --check --namespace recovery --queue-limit xx": "--queue-limit",
	} {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{"myriad"}, strings.Fields(args)...), &out, &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("myriad %s: %v", args, err)
		}
		if out.Len() > 0 {
			t.Errorf("myriad %s prints %s", args, out.String())
		}
	}
}

// --check reports all mistakes at once, also those that only the engine or the server can find.
func TestCheckTellsAll(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), strings.Fields("myriad serve --check --listen :1 --tls-cert a --driver x --namespace "+
		"name=a:b --namespace slow=never --allowed-origin / --publication-limit 9MiB --ping-interval 1ms"), &out, &out)
	if err == nil {
		t.Fatal("the mistakes were accepted")
	}
	for _, part := range []string{
		"--listen :1 can be", "--tls-cert and --tls-key", `driver "x": not supported (on `, `namespace "a:b"`,
		`slow "never"`, `allowed origin "/"`,
		"--publication-limit 9MiB: it may be at most 8MiB", "--ping-interval 1ms",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\ndoes not say %s", err, part)
		}
	}
}

// A wrong value of a variable that the CLI library reads itself gets our error message.
func TestSwitchInEnvironment(t *testing.T) {
	t.Setenv("MYRIAD_DISABLE_CONSOLE", "perhaps")
	err := run(t.Context(), []string{"myriad", "serve", "--check"}, io.Discard, io.Discard)
	if err == nil || err.Error() != `MYRIAD_DISABLE_CONSOLE is "perhaps": write true or false` {
		t.Error(err)
	}
}

// --check reports a valid configuration, and does not listen.
func TestCheck(t *testing.T) {
	url, _, _ := start(t)
	var out bytes.Buffer
	args := []string{"myriad", "serve", "--check", "--listen", strings.TrimPrefix(url, "http://"), "--namespace",
		"name=chat history-size=5 recovery"}
	if err := run(t.Context(), args, &out, &out); err != nil || out.String() != "the configuration is valid\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// The log has a warning if every user may read a file with secrets.
func TestReadableSecrets(t *testing.T) {
	for _, tt := range []struct {
		text string
		mode os.FileMode
		want bool
	}{{"api-key = 'k'", 0o644, true}, {"api-key = 'k'", 0o640, false}, {"loops = 1", 0o644, false},
		{"cluster-listen = '127.0.0.1:6222'\ncluster-secret = 's'\ndata = 'd'", 0o644, true}} {
		name := written(t, tt.text)
		if err := os.Chmod(name, tt.mode); err != nil {
			t.Fatal(err)
		}
		if s, err := configured(t, nil, "--config", name); err != nil || (s.readable != "") != tt.want {
			t.Errorf("%q with %v: %q, %v", tt.text, tt.mode, s.readable, err)
		}
	}
}

// Each mistake of a namespace gets a line of its own, with the place where it stands.
func TestMistakesOfANamespace(t *testing.T) {
	name := written(t, "[[namespace]]\nname = 'chat'\nhistory-siz = 1\nrecover = true\n")
	_, err := configured(t, nil, "--config", name)
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2: %v", len(lines), err)
	}
	for i, want := range []string{`"history-siz" is no rule`, `"recover" is no rule`} {
		if !strings.HasPrefix(lines[i], "[[namespace]] 1 in "+name+": ") || !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want the place and %q", i, lines[i], want)
		}
	}
	name += ".yaml"
	if err := os.WriteFile(name, []byte("listen: 127.0.0.1:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := configured(t, nil, "--config", name); err == nil || !strings.Contains(err.Error(), "must be TOML") {
		t.Errorf("a YAML file: %v", err)
	}
}

// The log warns of settings that are weaker than they look.
func TestRisks(t *testing.T) {
	for _, tt := range []struct {
		secret, origin string
		want           []string
	}{
		{"", "", nil},
		{strings.Repeat("s", minSecret), "*", nil},
		{"short", "example.com", []string{"has 5 bytes"}},
		{"", "*", []string{"every web page"}},
	} {
		var s settings
		s.push.TokenSecret, s.push.AllowedOrigins = tt.secret, []string{tt.origin}
		got := s.risks()
		if len(got) != len(tt.want) || len(got) > 0 && !strings.Contains(got[0], tt.want[0]) {
			t.Errorf("secret %q, origin %q: %q, want %q", tt.secret, tt.origin, got, tt.want)
		}
	}
}

func TestLogFormat(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log bytes.Buffer
	if err := run(ctx, []string{"myriad", "serve", "--listen", "127.0.0.1:0", "--log-format", "json"}, &log,
		&log); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log.String()) {
		if !strings.HasPrefix(line, `{"time":"`) {
			t.Errorf("not JSON: %s", line)
		}
	}
	log.Reset()
	if err := run(ctx, []string{"myriad", "serve", "--listen", "127.0.0.1:0", "--log-level", "error"}, &log,
		&log); err != nil || log.Len() > 0 {
		t.Errorf("at level error: %q, %v", log.String(), err)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"listen", "queue-limit", "api-key", "name"}
	for written, want := range map[string]string{"listen": "listen", "lsiten": "listen", "queue_limit": "queue-limit",
		"key": "", "port": "", "apikey": "api-key", "": "", "nam": "name", "bind": ""} {
		if got := nearest(written, names); got != want {
			t.Errorf("%q is nearest to %q, want %q", written, got, want)
		}
	}
}

// options.md lists every option as the program's table does. options.zh-CN.md has the same rows
// with Chinese explanations.
func TestGuidesListEveryOption(t *testing.T) {
	rows := func(name string) (found [][]string) {
		text, err := os.ReadFile(filepath.Join("../../../docs/guides", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "| `--") {
				cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
				for i := range cells {
					cells[i] = strings.TrimSpace(cells[i])
				}
				found = append(found, cells)
			}
		}
		return found
	}
	var want []string
	for _, o := range options {
		standard := ""
		if o.standard != "" {
			standard = "`" + o.standard + "`"
		}
		want = append(want, fmt.Sprintf("`--%s`|`%s`|%s|%s", o.name, o.env(), standard, o.usage))
	}
	var english, chinese []string
	for _, cells := range rows("options.md") {
		english = append(english, strings.Join(cells, "|"))
	}
	if !slices.Equal(english, want) {
		var table strings.Builder
		for _, row := range want {
			table.WriteString("| " + strings.ReplaceAll(row, "|", " | ") + " |\n")
		}
		t.Errorf("options.md has\n%s\nbut the table is\n%s", strings.Join(english, "\n"), table.String())
	}
	for i := range want {
		want[i] = want[i][:strings.LastIndex(want[i], "|")]
	}
	for _, cells := range rows("options.zh-CN.md") {
		if len(cells) != 4 || cells[3] == "" {
			t.Errorf("options.zh-CN.md does not explain %q", cells)
		}
		chinese = append(chinese, strings.Join(cells[:3], "|"))
	}
	if !slices.Equal(chinese, want) {
		t.Errorf("options.zh-CN.md has\n%s\nnot\n%s", strings.Join(chinese, "\n"), strings.Join(want, "\n"))
	}
}

func TestGuideListsEveryRule(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guides/push.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range namespaceRules {
		if row := fmt.Sprintf("| `%s` | %s |", r.name, r.usage); !strings.Contains(string(guide), row) {
			t.Errorf("docs/guides/push.md has no row\n%s", row)
		}
	}
}

var errNothing = errors.New("nothing")

func TestComplain(t *testing.T) {
	if err := complain(nil, "a", "b"); err != nil {
		t.Error(err)
	}
	if err := complain(errNothing, "--a", "b"); !errors.Is(err, errNothing) || err.Error() != `--a is "b": nothing` {
		t.Error(err)
	}
}
