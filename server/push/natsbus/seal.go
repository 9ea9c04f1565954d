package natsbus

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
)

// A seal is a small file in which a node notes how far it has followed a log. At its next start the
// node compares: a log that has lost its end does not match. The file is written without a sync: it
// survives the process, and a machine that has started again has another boot.
type seal struct {
	file *os.File
	boot string
	buf  []byte
}

// maxSeal is more than a seal's bytes.
const maxSeal = 256

// open opens the file of a log, if there is a folder. Without the file the node knows nothing.
func (s *seal) open(dir, stream string) {
	if dir == "" {
		return
	}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil { // Linux: random(4)
		s.boot = strings.TrimSpace(string(boot))
	}
	s.file, _ = os.OpenFile(filepath.Join(dir, stream+".seal"), os.O_RDWR|os.O_CREATE, 0o600)
}

func (s *seal) close() {
	if s.file != nil {
		_ = s.file.Close() // what it has written is with the kernel
	}
}

// write notes that everything up to last, whose time is at, has been delivered.
func (s *seal) write(epoch string, last uint64, at int64) {
	if s.file == nil {
		return
	}
	s.buf = append(s.buf[:0], 0, 0, 0, 0)
	s.buf = appendText(appendText(s.buf, s.boot), epoch)
	s.buf = binary.AppendUvarint(binary.AppendUvarint(s.buf, last), uint64(at))
	binary.BigEndian.PutUint32(s.buf, crc32.ChecksumIEEE(s.buf[4:]))
	_, _ = s.file.WriteAt(s.buf, 0) // a seal that is too old makes a new epoch more likely, which is safe
}

// read returns what was noted last; the epoch is empty if nothing was. sameBoot says that the
// machine has been running since.
func (s *seal) read() (epoch string, last uint64, at int64, sameBoot bool) {
	if s.file == nil {
		return "", 0, 0, false
	}
	buf := make([]byte, maxSeal)
	n, _ := s.file.ReadAt(buf, 0)
	if n <= 4 {
		return "", 0, 0, false
	}
	r := reader{rest: buf[4:n]}
	boot := r.text()
	epoch, last = r.text(), r.number()
	at = int64(r.number())
	size := n - len(r.rest)
	if r.wrong || crc32.ChecksumIEEE(buf[4:size]) != binary.BigEndian.Uint32(buf) {
		return "", 0, 0, false
	}
	return epoch, last, at, s.boot != "" && boot == s.boot
}
