package record

import "crypto/tls"

// maxUseless is how many records, and messages, may follow each other of which none brings data. It
// is the limit of crypto/tls.
const maxUseless = 16

// An Event is what a record has brought.
type Event uint8

const (
	// Nothing: an empty record, the part of a message, or user_canceled.
	Nothing Event = iota
	// Data is application data.
	Data
	// Updated: the Reader has its next keys, and needs another Cipher.
	Updated
	// Requested is Updated by a peer that wants the Writer to be updated, too: see
	// Writer.SealUpdate.
	Requested
	// Closed: the peer's close_notify. Nothing may be opened after it.
	Closed
)

// A Reader is a server's receiving side. The zero value needs Set. After a failure it must not be
// used any more.
type Reader struct {
	Keys
	useless uint8 // since the last data
	have    uint8 // bytes of message
	message [5]byte
}

// Size is how many bytes the first record of p has with its header. If the header is not complete,
// it is HeaderLen. It fails for a header that no record of TLS 1.3 behind the handshake can have:
// the peer need not send the rest.
func Size(p []byte) (int, *Failure) {
	if len(p) < HeaderLen {
		return HeaderLen, nil
	}
	if version := int(p[1])<<8 | int(p[2]); version != 0x0303 {
		return 0, malformed(protocolVersion, p, "received record with version %x when expecting version 303", version)
	}
	n := int(p[3])<<8 | int(p[4])
	if n > maxBody {
		return 0, malformed(recordOverflow, p, "oversized record received with length %d", n)
	}
	if Type(p[0]) != ApplicationData { // not protected, or a change_cipher_spec behind Finished
		return 0, local(unexpectedMessage)
	}
	return HeaderLen + n, nil
}

// Open opens a whole record, as Size has it, in place. The data lies in record. c is the Cipher of
// r's current key.
func (r *Reader) Open(c *Cipher, record []byte) (e Event, data []byte, f *Failure) {
	kind, content, f := r.open(c, record)
	switch {
	case f != nil:
		return 0, nil, f
	case kind == Handshake:
		e, f = r.handshake(content)
		return e, nil, f
	case r.have > 0: // a message must not be interrupted (RFC 8446, section 5.1)
		return 0, nil, local(unexpectedMessage)
	case kind == Alert:
		e, f = r.alert(content)
		return e, nil, f
	case kind != ApplicationData:
		return 0, nil, local(unexpectedMessage)
	case len(content) == 0:
		return Nothing, nil, r.wasted()
	}
	r.useless = 0
	return Data, content, nil
}

// open decrypts a record and removes its padding (RFC 8446, sections 5.2 and 5.4).
func (k *Keys) open(c *Cipher, record []byte) (Type, []byte, *Failure) {
	if k.used() {
		return 0, nil, local(internalError)
	}
	body := record[HeaderLen:]
	inner, err := c.aead.Open(body[:0], c.nonceOf(k), body, record[:HeaderLen])
	if err != nil {
		return 0, nil, local(badRecordMAC)
	}
	k.number++
	if len(inner) > MaxPlaintext+1 {
		return 0, nil, local(recordOverflow)
	}
	i := len(inner) - 1
	for i >= 0 && inner[i] == 0 {
		i--
	}
	if i < 0 {
		return 0, nil, local(unexpectedMessage)
	}
	return Type(inner[i]), inner[:i], nil
}

// alert takes the content of an alert record. All but two alerts are fatal, whatever their level
// says (RFC 8446, section 6).
func (r *Reader) alert(p []byte) (Event, *Failure) {
	if len(p) != 2 {
		return 0, local(unexpectedMessage)
	}
	switch alert := tls.AlertError(p[1]); alert {
	case closeNotify:
		return Closed, nil
	case userCanceled:
		return Nothing, r.wasted()
	default:
		return 0, &Failure{Alert: alert, Remote: true}
	}
}

// handshake takes a part of the handshake's stream. A client may send nothing but KeyUpdate (RFC
// 8446, section 4.6.3), with which its record must end.
func (r *Reader) handshake(p []byte) (Event, *Failure) {
	const keyUpdate = 24
	if len(p) == 0 { // RFC 8446, section 5.4
		return 0, local(unexpectedMessage)
	}
	for i, b := range p {
		r.message[r.have] = b
		r.have++
		switch r.have {
		case 1:
			if b != keyUpdate {
				return 0, local(unexpectedMessage)
			}
		case 4:
			if r.message[1] != 0 || r.message[2] != 0 || b != 1 {
				return 0, local(decodeError)
			}
		case 5:
			if b > 1 {
				return 0, local(illegalParameter)
			}
			if i != len(p)-1 { // what follows has the old key
				return 0, local(unexpectedMessage)
			}
			if f := r.wasted(); f != nil {
				return 0, f
			}
			r.have = 0
			r.update()
			return Updated + Event(b), nil
		}
	}
	return Nothing, nil
}

// wasted counts a record or message without data.
func (r *Reader) wasted() *Failure {
	if r.useless++; r.useless > maxUseless {
		return useless()
	}
	return nil
}
