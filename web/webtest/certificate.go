package webtest

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// certificatePEM is valid for 127.0.0.1, ::1, localhost, example.com and *.example.com until 2084.
// It signs itself, so that it can be trusted as a root.
const certificatePEM = `-----BEGIN CERTIFICATE-----
MIIBzTCCAXSgAwIBAgIBATAKBggqhkjOPQQDAjAdMRswGQYDVQQKExJNeXJpYWQs
IHRlc3RzIG9ubHkwIBcNNzAwMTAxMDAwMDAwWhgPMjA4NDAxMjkxNjAwMDBaMB0x
GzAZBgNVBAoTEk15cmlhZCwgdGVzdHMgb25seTBZMBMGByqGSM49AgEGCCqGSM49
AwEHA0IABAjONrv32VxK38mIqVa0shC5i59kck99qAiAYClKLbmAEOoU9+AnNgrr
mL5z+Yb4pFHowHZN9a/BBQfbj+0A5zCjgaIwgZ8wDgYDVR0PAQH/BAQDAgKEMBMG
A1UdJQQMMAoGCCsGAQUFBwMBMA8GA1UdEwEB/wQFMAMBAf8wHQYDVR0OBBYEFNiA
xHB+4dvpSIu2z2q8+9WtoPUbMEgGA1UdEQRBMD+CC2V4YW1wbGUuY29tgg0qLmV4
YW1wbGUuY29tgglsb2NhbGhvc3SHBH8AAAGHEAAAAAAAAAAAAAAAAAAAAAEwCgYI
KoZIzj0EAwIDRwAwRAIgMS2xcmb+Rnd/E73s7eA0csXVY8ax/REJvhL+R8NSAfoC
IBCuGbkj+Pl3m6fZYLLidohwjAnNoptWKcr2CXCrYyLm
-----END CERTIFICATE-----
`

// keyPEM is no secret. Its name is that of net/http/httptest, so that searches for keys that got
// into a repository by mistake do not find it.
const keyPEM = `-----BEGIN TESTING KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgN9N6rO7WBRAlfKgs
OoO2788rM72ZorBO/NIpoQ8SzmuhRANCAAQIzja799lcSt/JiKlWtLIQuYufZHJP
fagIgGApSi25gBDqFPfgJzYK65i+c/mG+KRR6MB2TfWvwQUH24/tAOcw
-----END TESTING KEY-----
`

// certificate returns the certificate of all servers with its key.
func certificate() tls.Certificate {
	c, err := tls.X509KeyPair([]byte(certificatePEM), []byte(strings.ReplaceAll(keyPEM, "TESTING KEY", "PRIVATE KEY")))
	if err != nil {
		panic(fmt.Sprintf("webtest: the certificate: %v", err))
	}
	return c
}
