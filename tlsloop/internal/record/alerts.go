package record

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// A Type is the content type of a record (RFC 8446, section 5.1).
type Type uint8

const (
	Alert           Type = 21
	Handshake       Type = 22
	ApplicationData Type = 23
)

// Descriptions of alerts (RFC 8446, section 6).
const (
	closeNotify       tls.AlertError = 0
	unexpectedMessage tls.AlertError = 10
	badRecordMAC      tls.AlertError = 20
	recordOverflow    tls.AlertError = 22
	illegalParameter  tls.AlertError = 47
	decodeError       tls.AlertError = 50
	protocolVersion   tls.AlertError = 70
	internalError     tls.AlertError = 80
	userCanceled      tls.AlertError = 90
)

// A Failure is the end of a connection.
type Failure struct {
	// Alert is what the peer is to be sent, or has sent.
	Alert tls.AlertError
	// Remote reports whether the peer has sent it.
	Remote bool
	// Err says more than the alert, in the words of crypto/tls, or is nil.
	Err error
}

// AppendAlert appends the content of the alert that is to be sent, or nothing.
func (f *Failure) AppendAlert(p []byte) []byte {
	const fatal = 2
	if f.Remote {
		return p
	}
	return append(p, fatal, byte(f.Alert))
}

// CloseNotify is the content of the alert that ends a stream in order.
func CloseNotify() [2]byte {
	const warning = 1
	return [2]byte{warning, byte(closeNotify)}
}

// local is the failure of a peer that has broken a rule.
func local(alert tls.AlertError) *Failure {
	return &Failure{Alert: alert}
}

// malformed is the failure of a peer whose header is wrong.
func malformed(alert tls.AlertError, header []byte, format string, args ...any) *Failure {
	err := tls.RecordHeaderError{Msg: fmt.Sprintf(format, args...)}
	copy(err.RecordHeader[:], header)
	return &Failure{Alert: alert, Err: err}
}

// useless is the failure of a peer that sends records without any use.
func useless() *Failure {
	return &Failure{Alert: unexpectedMessage, Err: errors.New("tls: too many ignored records")}
}
