//go:build unix

package importer

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe in the place of a file keeps all of its bytes: `ledgerd tx import <(zcat entries.gz)`.
func TestPipeIsNotReadAhead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	const line = `{"postings":[{"account":"a","amount":-1},{"account":"b","amount":1}]}`
	// Open for both, the pipe needs no reader yet and has no end.
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := pipe.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
	if IsJournal(path) {
		t.Fatal("it is a journal")
	}
	source, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if got, err := source.next(nil); err != nil || string(got) != line {
		t.Errorf("%q %v", got, err)
	}
}
