package keyfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Read reads and parses a key file, or a pipe. Errors: ErrFile, and the file system's. A file that
// names a command and that others than its owner may change is ErrFile: they could run anything.
func Read(path string) (*File, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%w: %s is no file", ErrFile, path)
	}
	text, err := io.ReadAll(io.LimitReader(opened, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	defer clear(text)
	file, err := Parse(text)
	if err == nil && file.Form() == Command && info.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("%w: it names a command, and others may change it: chmod go-w it", ErrFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// Create writes a new file, durably. If there is one, it returns an error that matches fs.ErrExist
// and leaves it as it is.
func Create(path string, text []byte) error { return write(path, text, os.Link) }

// Replace writes a file, durably, in place of another one. At any moment, one of them is there.
func Replace(path string, text []byte) error { return write(path, text, os.Rename) }

func write(path string, text []byte, appear func(draft, path string) error) error {
	folder := filepath.Dir(path)
	draft, err := os.CreateTemp(folder, ".new-*") // readable by its owner only
	if err != nil {
		return fmt.Errorf("keeping a key: %w", err)
	}
	defer os.Remove(draft.Name()) // has no effect after a rename
	_, err = draft.Write(text)
	err = errors.Join(err, draft.Sync(), draft.Close())
	if err == nil {
		err = appear(draft.Name(), path)
	}
	if err == nil {
		err = syncFolder(folder)
	}
	if errors.Is(err, fs.ErrExist) {
		return err
	}
	if err != nil {
		return fmt.Errorf("keeping a key: %w", err)
	}
	return nil
}

func syncFolder(folder string) error {
	opened, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(opened.Sync(), opened.Close())
}
