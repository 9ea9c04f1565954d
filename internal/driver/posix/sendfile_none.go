//go:build netbsd || openbsd

package posix

// sendFile copies: these systems have no sendfile(2).
func sendFile(to, from int, off int64, n int) (int, error) { return copyFile(to, from, off, n) }
