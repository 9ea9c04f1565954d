package exchange

import (
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/myriad-go/myriad/buf"
)

// minSendFile is the least of a file that is sent by the kernel; less is read and written.
const minSendFile = sniffLen

// readFrom has the kernel send src where it can.
func (w *Response) readFrom(src io.Reader) (int64, error) {
	first, err := w.readFirst(src)
	if err != nil || first < sniffLen && w.Head != HeadSent {
		return first, err
	}
	n, err := w.readFile(src)
	if err != nil {
		return first + n, err
	}
	b := buf.Get(pieceBytes)
	defer b.Release()
	rest, err := io.CopyBuffer(writerOnly{w.X.Given}, src, b.Extend())
	return first + n + rest, err
}

// readFirst writes as much as the type of the content is found out from, so that nothing is sent
// before src has given anything.
func (w *Response) readFirst(src io.Reader) (int64, error) {
	if w.Head == HeadSent {
		return 0, nil
	}
	b := buf.Get(sniffLen)
	defer b.Release()
	return io.CopyBuffer(writerOnly{w.X.Given}, io.LimitReader(src, sniffLen), b.Extend())
}

// writerOnly hides ReadFrom from io.Copy.
type writerOnly struct{ io.Writer }

// readFile has the kernel send src, if that is a file and can be sent as it is. It reports how much
// of it.
func (w *Response) readFile(src io.Reader) (int64, error) {
	if w.X.Progress() != Handling || !BodyAllowed(w.Status) || w.NoBody {
		return 0, nil // Write knows what to say
	}
	part := partOf(src)
	if part.n < minSendFile {
		return 0, nil
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	if !w.X.Carrier.CanSendFile() {
		return 0, nil
	}
	if w.Extent.Known() {
		part.n = min(part.n, w.length-w.Written)
	}
	if part.n < minSendFile {
		return 0, nil
	}
	if err := w.X.Carrier.SendFile(part.file, part.off, part.n); err != nil {
		return 0, err
	}
	w.Written += part.n
	return part.n, part.skip()
}

// A filePart is the rest of a regular file: n bytes from off on. n is 0 for other readers.
type filePart struct {
	file   *os.File
	off, n int64
	limit  *io.LimitedReader // around the file, or nil
}

func partOf(src io.Reader) (p filePart) {
	left := int64(-1)
	if l, ok := src.(*io.LimitedReader); ok {
		p.limit, src, left = l, l.R, l.N
	}
	if p.file = fileOf(src); p.file == nil {
		return filePart{}
	}
	info, err := p.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return filePart{}
	}
	if p.off, err = p.file.Seek(0, io.SeekCurrent); err != nil {
		return filePart{}
	}
	p.n = max(info.Size()-p.off, 0)
	if left >= 0 {
		p.n = min(p.n, left)
	}
	return p
}

// fileOf finds the file in what io.Copy passes on for one: itself, or a struct around it that hides
// its WriteTo.
func fileOf(src io.Reader) *os.File {
	if f, ok := src.(*os.File); ok {
		return f
	}
	v := reflect.ValueOf(src)
	if v.Kind() != reflect.Struct || v.Type().PkgPath() != "os" {
		return nil
	}
	field := v.FieldByName("File")
	if !field.IsValid() || !field.CanInterface() {
		return nil
	}
	f, _ := field.Interface().(*os.File)
	return f
}

// skip moves on in the file as a reader would have.
func (p filePart) skip() error {
	if p.limit != nil {
		p.limit.N -= p.n
	}
	if _, err := p.file.Seek(p.off+p.n, io.SeekStart); err != nil {
		return fmt.Errorf("web: after sending %d bytes of %s: %w", p.n, p.file.Name(), err)
	}
	return nil
}
