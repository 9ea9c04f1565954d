package clients

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// centrifugo is the module whose API definitions the stubs are made of.
const centrifugo = "github.com/centrifugal/centrifugo/v6@v6.9.1"

// apiProto returns the path of Centrifugo's api.proto, in the module that the go command downloads.
func apiProto(t *testing.T) string {
	t.Helper()
	var module struct{ Dir string }
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", centrifugo).Output()
	if json.Unmarshal(out, &module) != nil || module.Dir == "" {
		missing(t, "Centrifugo's api.proto", fmt.Sprintf("go mod download %s: %v: %s", centrifugo, err, out))
	}
	return filepath.Join(module.Dir, "internal", "apiproto", "api.proto")
}

// Stubs of Centrifugo's api.proto call every method of the gRPC API, in the clear and over TLS.
func TestGRPCAPI(t *testing.T) {
	t.Parallel()
	proto := apiProto(t)
	cert, key := certificate(t)
	for name, tt := range map[string]struct {
		cert string
		args []string
	}{
		"clear": {"", nil},
		"TLS":   {cert, []string{"--tls-cert", cert, "--tls-key", key}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, nil, binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--api-key", "key",
				"--namespace", "name=kept history-size=9 presence", "--namespace", "name=many history-size=2000"},
				tt.args...)...)
			addr := s.want(`url=https?://([0-9.:]+)`)[1]
			url := "http://" + addr
			if tt.cert != "" {
				url = "https://" + addr
			}
			events := curl(t, "-k", url+"/events?channel=kept:1")
			events.want(`^retry: `)
			p := python(t, "grpc grpc_tools", "testdata/grpcapi.py", proto, addr, "key", tt.cert)
			for _, line := range grpcLines {
				p.want(line)
			}
			if err := p.wait(); err != nil {
				t.Error(err)
			}
			for _, data := range []string{`{"n": 1}`, `"AP8="`, `"x+"`, `1`, `3`, `1`} {
				events.want(`^data: ` + data + `$`)
			}
		})
	}
}

// grpcLines is what testdata/grpcapi.py prints.
var grpcLines = []string{
	`^Publish: ok True \(1, True\)$`, `^again: ok True 1$`, `^bytes: ok True 2$`, `^gzip: ok True 3$`,
	`^deflate: UNIMPLEMENTED messages may be compressed by gzip only $`, `^skip_history: ok True 0$`,
	`^to none: error 107 channel is missing$`, `^large: RESOURCE_EXHAUSTED the message is larger than 266240 bytes $`,
	`^Broadcast: ok True \[4, 0, 107\]$`,
	`^History: ok True \[\(1, b'{"n": 1}', {'k': 'v'}\), \(2, b'\\x00\\xff', {}\), \(3, b'"xxxxxxx', {}\), ` +
		`\(4, b'3', {}\)\]$`,
	`^since: ok True \[3\]$`, `^of none: error 108 not available$`,
	`^as status: INVALID_ARGUMENT not available detailed$`,
	`^Presence: ok True \[\(True, ''\)\]$`, `^PresenceStats: ok True \(1, 1\)$`,
	`^Channels: ok True {'kept:1': 1}$`, `^Info: ok True \[\('myriad', 1, 1\)\]$`,
	`^Connections: ok True \[\('events', \['kept:1'\]\)\]$`, `^Subscribe: ok True$`,
	`^not JSON: error 107 info is not JSON$`, `^all_users: error 107 field "all_users" of subscribe is not served`,
	`^label_filter: error 107 field "label_filter" of disconnect is not served`, `^Unsubscribe: ok True$`,
	`^Disconnect: ok True$`, `^Refresh: ok True$`,
	`^Batch: ok \[\['publish'\], \['info'\], \['error'\], \['error'\], \['error'\]\]$`,
	`^many: RESOURCE_EXHAUSTED more than 256 commands in one request: send several detailed$`,
	`^HistoryRemove: ok True$`, `^RPC: error 104 the method "rpc" is not served`,
	`^MapPublish: error 104 the method "map_publish" is not served`, `^BlockUser: UNIMPLEMENTED there is no method`,
	`^wrong key: UNAUTHENTICATED `, `^no key: UNAUTHENTICATED `, `^at once: 500500$`,
}

// grpc-go calls the API, also more often at a time than a connection may have streams.
func TestGRPCAPIOfGo(t *testing.T) {
	t.Parallel()
	s := serve(t, "--api-key", "key")
	p := goProgram(t, "grpcgo", s.addr, "key", apiProto(t))
	for _, line := range []string{
		`^Publish: result:{}$`, `^Publish: result:{}$`, `^Publish: error:{code:107 +message:"channel is missing"}$`,
		`^PresenceStats: error:{code:108 +message:"not available"}$`,
		`^Batch: replies:{publish:{}} +replies:{channels:{}} +replies:{error:{code:104 `,
		`^RPC: error:{code:104 `, `^BlockUser: Unimplemented there is no method "BlockUser".* 0$`,
		`^Publish: InvalidArgument data is missing 1$`, `^Info: Unauthenticated the key is missing or wrong.* 0$`,
		`^Info: DeadlineExceeded .*$`, `^at once: 1000$`,
	} {
		p.want(line)
	}
	if err := p.wait(); err != nil {
		t.Error(err)
	}
}
