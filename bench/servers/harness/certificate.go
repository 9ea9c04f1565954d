package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// TLSConfig has a certificate made on the spot, ECDSA on P-256 like most on the web, and speaks TLS
// 1.3 and these protocols; without any HTTP/1.1.
func TLSConfig(protocols ...string) *tls.Config {
	if len(protocols) == 0 {
		protocols = []string{"http/1.1"}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		Ended(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		Ended(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS13, NextProtos: protocols,
	}
}

// CertificateFiles writes a certificate and its key into a folder, for programs that read them.
func CertificateFiles(folder string) (certificate, key string, err error) {
	pair := TLSConfig().Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	certificate, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for name, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		err = errors.Join(err, os.WriteFile(name, pem.EncodeToMemory(block), 0o600))
	}
	return certificate, key, err
}

// ClearHTTP2 are HTTP/1 and HTTP/2 without TLS.
func ClearHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}
