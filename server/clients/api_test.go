package clients

import "testing"

// Client libraries of Centrifugo's API return the results, and the codes and messages of errors.
func TestAPIClients(t *testing.T) {
	t.Parallel()
	for _, client := range []struct {
		name string
		run  func(t *testing.T, addr, key string) *process
		want []string
	}{
		{"cent", cent, []string{
			`^publish: ok 1 True$`, `^publish again: ok 1$`, `^skip_history: ok 0$`,
			`^b64data: ok$`,
			`^publish to none: error 107 channel is missing$`, `^broadcast: ok \[2, 0, 107\]$`,
			`^history: ok \[\(1, {'n': 1}, {'k': 'v'}\), \(2, 3, None\)\]$`,
			`^history of none: error 108 not available$`,
			`^history_remove: ok$`, `^presence: ok {}$`, `^presence_stats: ok 0$`, `^channels: ok {}$`,
			`^info: ok myriad$`,
			`^subscribe: ok$`, `^refresh: ok$`,
			`^unsubscribe: ok$`, `^disconnect: ok$`, `^batch: ok \(2, 'myriad'\)$`, `^batch: ok \(2, 'myriad'\)$`,
			`^wrong key: unauthorized$`,
		}},
		{"gocent", gocent, []string{
			`^publish: ok 1 true$`, `^skip_history: ok 0$`, `^publish to none: error 107 channel is missing$`,
			`^broadcast: ok 3$`, `^broadcast to one: error 107 the channel is not a name`, `^history: ok 2 2$`,
			`^history of none: error 108 not available$`, `^history_remove: ok$`, `^presence: ok 0$`,
			`^presence_stats: ok 0$`,
			`^channels: ok 0$`, `^info: ok 1 myriad$`, `^subscribe: ok$`,
			`^unsubscribe: ok$`, `^disconnect: ok$`, `^whitelist: error 107 disconnect has no field "ClientWhitelist"`,
			`^pipe: ok 2$`, `^wrong key: status 401$`,
		}},
	} {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--api-key", "key", "--namespace", "name=kept history-size=9 presence")
			p := client.run(t, "http://"+s.addr+"/api", "key")
			for _, line := range client.want {
				p.want(line)
			}
			if err := p.wait(); err != nil {
				t.Errorf("%s ended with %v", client.name, err)
			}
		})
	}
}

func cent(t *testing.T, url, key string) *process {
	t.Helper()
	return python(t, "cent", "testdata/api.py", url, key)
}

func gocent(t *testing.T, url, key string) *process {
	t.Helper()
	return goProgram(t, "gocent", url, key)
}

// goProgram builds and runs the program in that folder of testdata, a module of its own. The go
// command fetches the client library.
func goProgram(t *testing.T, name string, args ...string) *process {
	t.Helper()
	program, err := build(name, "testdata/"+name, ".", "GOWORK=off")
	if err != nil {
		missing(t, name, "go build in server/clients/testdata/"+name+": "+err.Error())
	}
	return start(t, nil, program, args...)
}
