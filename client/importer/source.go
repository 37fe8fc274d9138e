package importer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// maxLine bounds a line, in bytes.
const maxLine = 4 << 20

// Source is the origin of lines: a file or journals, which can be read again from their beginning,
// or a stream, which cannot.
type Source struct {
	file     *os.File   // nil for a stream and for journals
	journals []*os.File // of all shards, or none
	issuers  []string   // of journals
	stream   io.Reader
	size     int64 // of the file, 0 if unknown
	lines    *bufio.Reader
	read     atomic.Int64 // bytes of the file read
	name     string
}

// OpenFile opens a file of lines, plain or gzip, which it detects from the first bytes. The caller
// closes the source.
func OpenFile(path string) (*Source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("importer: %w", err)
	}
	source := &Source{file: file, name: path}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		source.size = info.Size()
	} else if err == nil && info.IsDir() {
		return nil, errors.Join(fmt.Errorf("importer: %s is a folder: name a file of JSON lines",
			path), file.Close())
	}
	if err := source.begin(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return source, nil
}

// Stream makes a source that can be read once, such as standard input.
func Stream(reader io.Reader) (*Source, error) {
	source := &Source{stream: reader, name: "the input"}
	return source, source.begin(reader)
}

// countingReader counts the file's bytes as they are read, to show progress.
type countingReader struct {
	reader io.Reader
	count  *atomic.Int64
}

func (r *countingReader) Read(buffer []byte) (int, error) {
	n, err := r.reader.Read(buffer)
	r.count.Add(int64(n))
	return n, err
}

func (s *Source) begin(reader io.Reader) error {
	s.read.Store(0)
	raw := bufio.NewReaderSize(&countingReader{reader, &s.read}, 256<<10)
	magic, err := raw.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("importer: reading %s: %w", s.name, err)
	}
	s.lines = raw
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(raw)
		if err != nil {
			return fmt.Errorf("importer: %s begins like gzip but is not valid: %w", s.name, err)
		}
		s.lines = bufio.NewReaderSize(unzipped, 256<<10)
	}
	return nil
}

// rewindable reports whether the source can be read again.
func (s *Source) rewindable() bool {
	return (s.file != nil || len(s.journals) > 0) && s.size > 0
}

// rewind returns to the beginning.
func (s *Source) rewind() error {
	if len(s.journals) > 0 {
		return s.rewindJournals()
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("importer: reading %s again: %w", s.name, err)
	}
	return s.begin(s.file)
}

// rewindJournals returns to the beginning of all journals.
func (s *Source) rewindJournals() error {
	s.read.Store(0)
	var names []string
	var readers []io.Reader
	for _, file := range s.journals {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("importer: reading %s again: %w", file.Name(), err)
		}
		names, readers = append(names, file.Name()), append(readers,
			&countingReader{file, &s.read})
	}
	lines, err := newMerged(names, readers)
	if err != nil {
		return err
	}
	s.lines = bufio.NewReaderSize(lines, 256<<10)
	return nil
}

// next returns the next line without its end, or io.EOF. The line is valid until the next call.
func (s *Source) next(buffer []byte) ([]byte, error) {
	buffer = buffer[:0]
	for {
		part, err := s.lines.ReadSlice('\n')
		buffer = append(buffer, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(buffer) <= maxLine:
			continue
		case len(buffer) > maxLine:
			return nil, fmt.Errorf("importer: %s has a line of more than %d bytes: is it a file "+
				"of JSON lines?", s.name, maxLine)
		case errors.Is(err, io.EOF) && len(buffer) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("importer: reading %s: %w", s.name, err)
		}
		return bytes.TrimRight(buffer, "\r\n"), nil
	}
}

// Close closes the file or the journals.
func (s *Source) Close() error {
	var failures []error
	for _, file := range s.journals {
		failures = append(failures, file.Close())
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
