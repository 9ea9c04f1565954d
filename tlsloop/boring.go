//go:build boringcrypto

package tlsloop

// cryptoTLSOnly keeps all records in crypto/tls, whose policy package crypto/tls/fipsonly sets.
const cryptoTLSOnly = true
