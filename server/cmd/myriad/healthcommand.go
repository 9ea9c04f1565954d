package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/urfave/cli/v3"
)

func healthCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "health",
		Usage:     "ask a server how it is, and exit with 0 if it may have clients: for containers without curl",
		ArgsUsage: "[URL]",
		Description: "The URL is that of the server, as in https://push.example.com. Without one, the server on this " +
			"machine is asked\nwhose address is in --listen or MYRIAD_LISTEN. The file of serve --config is not read.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8000", Usage: "`ADDRESS` of the server's --listen",
				Sources: cli.EnvVars("MYRIAD_LISTEN")},
			&cli.StringFlag{Name: "tls-cert", Usage: "`FILE` of the server's --tls-cert; empty: it has no TLS",
				Sources: cli.EnvVars("MYRIAD_TLS_CERT")},
			&cli.StringFlag{Name: "timeout", Value: "3s", Usage: "`TIME` for the answer"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			timeout, err := parseTime(c.String("timeout"))
			if err != nil {
				return fmt.Errorf("--timeout is %q: %w", c.String("timeout"), err)
			}
			if c.Args().Len() > 1 {
				return fmt.Errorf("health takes one URL, but got %q", c.Args().Slice())
			}
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			if url := c.Args().First(); url != "" {
				return askHealth(ctx, &http.Client{}, url, stdout)
			}
			client, url, err := clientOfThisMachine(c.String("listen"), c.String("tls-cert") != "")
			if err != nil {
				return err
			}
			if err := askHealth(ctx, client, url, stdout); err != nil {
				return fmt.Errorf("--listen %s: %w", c.String("listen"), err)
			}
			return nil
		},
	}
}

// clientOfThisMachine returns a client for the server that listens at the address, and its URL. The
// certificate is not verified: it names what the world calls this machine.
func clientOfThisMachine(listen string, encrypted bool) (*http.Client, string, error) {
	a, err := parseAddress("--listen", listen)
	if err != nil {
		return nil, "", err
	}
	network, target := "tcp", a.target
	switch a.kind {
	case inheritedAddress:
		return nil, "", a.wrong("the address of an inherited socket is not known here: give the URL of the server")
	case unixAddress:
		network, encrypted = "unix", false
	default:
		host, port, _ := net.SplitHostPort(target) // parseAddress has checked it
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "localhost"
		}
		target = net.JoinHostPort(host, port)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, target)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	if encrypted {
		return client, "https://localhost", nil
	}
	return client, "http://localhost", nil
}

// askHealth prints what the server says, and returns an error if it should have no clients.
func askHealth(ctx context.Context, client *http.Client, url string, stdout io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, "GET", strings.TrimSuffix(url, "/")+"/health", nil)
	if err != nil {
		return fmt.Errorf("%q is no URL of a server: write one as in https://push.example.com", url)
	}
	response, err := client.Do(request)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the server does not answer in time: see --timeout")
	case err != nil:
		return fmt.Errorf("the server does not answer: %w", cause(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", cause(err))
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	_, err = fmt.Fprintln(stdout, strings.TrimSpace(string(text)))
	return err
}
