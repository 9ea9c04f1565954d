package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestExposure(t *testing.T) {
	const key, secret = "key", "secret"
	for _, tt := range []struct {
		listen, key, secret string
		development         bool
		wrong               []string // words of the error; none: the server may start
	}{
		{"127.0.0.1:8000", "", "", true, nil},
		{"127.1.2.3:0", "", "", true, nil},
		{"[::1]:8000", "", "", true, nil},
		{"localhost:8000", "", "", true, nil},
		{"LOCALHOST:8000", "", "", true, nil},
		{"127.0.0.1:8000", key, "", false, nil},
		{"127.0.0.1:8000", "", secret, false, nil},
		{"127.0.0.1:8000", key, secret, false, nil},
		{"0.0.0.0:8000", key, secret, false, nil},
		{":8000", key, secret, false, nil},
		{"example.org:8000", key, secret, false, nil},
		{"0.0.0.0:8000", "", "", false, []string{"MYRIAD_API_KEY", "MYRIAD_TOKEN_SECRET"}},
		{":8000", "", "", false, []string{"MYRIAD_API_KEY", "MYRIAD_TOKEN_SECRET"}},
		{"[::]:8000", "", "", false, []string{"MYRIAD_API_KEY", "MYRIAD_TOKEN_SECRET"}},
		{"10.0.0.1:8000", key, "", false, []string{"MYRIAD_TOKEN_SECRET"}},
		{"10.0.0.1:8000", "", secret, false, []string{"MYRIAD_API_KEY"}},
		{"localhost.example.org:8000", "", "", false, []string{"MYRIAD_API_KEY"}},
		{"127.0.0.1", "", "", false, []string{"HOST:PORT"}},
		{"unix:/run/myriad.sock", "", "", true, nil},
		{"unix:/run/myriad.sock", key, secret, false, nil},
		{"unix:", "", "", false, []string{"write the path"}},
		{"unix:@myriad", "", "", false, []string{"abstract sockets have no permissions"}},
		{"unix:/" + strings.Repeat("x", maxUnixPath), "", "", false, []string{"the path has 104 bytes"}},
		{"fd:2", "", "", false, []string{"write a descriptor from 3 on"}},
		{"fd:", "", "", false, []string{"write a descriptor from 3 on"}},
		{"fd:3", "", "", true, nil}, // what it is, is known when it is inherited
		{"/run/myriad.sock", "", "", false, []string{"HOST:PORT"}},
		{"http://127.0.0.1:8000", "", "", false, []string{"HOST:PORT"}},
		{"127.0.0.1:65536", "", "", false, []string{"port"}},
	} {
		all, err := settings{listen: tt.listen}.addresses()
		development := false
		if err == nil {
			development, err = all.checkExposure(tt.key, tt.secret != "")
		}
		if development != tt.development || (err != nil) != (tt.wrong != nil) {
			t.Errorf("%+v: %v, %v", tt, development, err)
		}
		for _, word := range tt.wrong {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%+v: %v does not say %q", tt, err, word)
			}
		}
		if err != nil && tt.wrong[0] == "HOST:PORT" && strings.Contains(err.Error(), "other machines") {
			t.Errorf("%+v: %v gives another reason, too", tt, err)
		}
		if err != nil && tt.key != "" && strings.Contains(err.Error(), "MYRIAD_API_KEY") {
			t.Errorf("%+v: %v requests a setting that is set", tt, err)
		}
	}
}

// The command refuses before it opens an address, also if the address comes from the environment.
func TestServeRefuses(t *testing.T) {
	t.Setenv("MYRIAD_LISTEN", "0.0.0.0:0")
	t.Setenv("MYRIAD_TOKEN_SECRET", "secret")
	err := run(context.Background(), []string{"myriad", "serve"}, new(bytes.Buffer), new(bytes.Buffer))
	if err == nil || !strings.Contains(err.Error(), "MYRIAD_API_KEY") {
		t.Errorf("serve: %v", err)
	}
}

// serve rejects an address without --listen, instead of listening on the default address.
func TestServeTakesNoArguments(t *testing.T) {
	err := run(context.Background(), []string{"myriad", "serve", "0.0.0.0:9000"}, new(bytes.Buffer), new(bytes.Buffer))
	if err == nil || !strings.Contains(err.Error(), "0.0.0.0:9000") || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("serve 0.0.0.0:9000: %v", err)
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), []string{"myriad", "version"}, &out, &out); err != nil ||
		!strings.HasPrefix(out.String(), "myriad ") {
		t.Errorf("version: %q, %v", out.String(), err)
	}
}
