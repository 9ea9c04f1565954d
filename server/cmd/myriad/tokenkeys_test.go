package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A public key in a file is enough for tokens; a file without one is a mistake that --check names.
func TestTokenKeyFiles(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	for file, want := range map[string]string{
		good:                             "",
		write("bad.pem", []byte("x")):    "there is no PEM block of a public key",
		filepath.Join(dir, "absent.pem"): "--token-key: open",
	} {
		err := run(t.Context(), []string{"myriad", "serve", "--check", "--listen", "0.0.0.0:0", "--api-key", "k",
			"--token-key", file}, io.Discard, io.Discard)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", filepath.Base(file), err, want)
		}
	}
}
