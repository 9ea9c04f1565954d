//go:build !boringcrypto

package tlsloop

const cryptoTLSOnly = false
