// Command nghttpd becomes nghttp2's server, which serves a file with the answer.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() { harness.Become("nghttpd", arguments) }

func arguments(app, host string, port int) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	root := self + "-root" // beside the program, where the next run finds it
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(root, harness.Path), []byte(harness.Answer), 0o644); err != nil {
		return nil, err
	}
	args := []string{"--address", host, "--htdocs", root, "--max-concurrent-streams", "250"}
	switch app {
	case "h2":
		return append(args, "--no-tls", strconv.Itoa(port)), nil
	case "h2s":
		certificate, key, err := harness.CertificateFiles(root)
		return append(args, strconv.Itoa(port), key, certificate), err
	}
	return nil, fmt.Errorf("there is no app %q in this server: it has h2, h2s", app)
}
