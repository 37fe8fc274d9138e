package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/client/sink"
)

// positions is the file with the position of one stream. A lock beside it keeps other processes
// out.
type positions struct {
	path string
	sink string // its name
	lock *os.File
}

// kept is the content of the file.
type kept struct {
	sink.Mark
	Sink string `json:"sink"` // its name
}

// openPositions takes the lock of a stream.
func openPositions(path, name string) (*positions, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("webhook: another process uses %s: end it, or give "+
			"this sink another folder", path), lock.Close())
	}
	return &positions{path: path, sink: name, lock: lock}, nil
}

func (p *positions) close() error { return p.lock.Close() }

// positionRoom is more than the file of a position has, in bytes.
const positionRoom = 4 << 10

// probe returns an error if the next position could not be kept, as on a full disk. Without it,
// each try would send an entry whose position is not kept, and so send it again.
func (p *positions) probe() error {
	next := p.path + ".next"
	err := writeSynced(next, make([]byte, positionRoom))
	if err == nil {
		err = os.Remove(next)
	}
	if err != nil {
		return fmt.Errorf("webhook: nothing is sent, because its position could not be kept: %w: "+
			"make room or give the right to write in %s", err, filepath.Dir(p.path))
	}
	return nil
}

// read returns the position, or nil if there is none.
func (p *positions) read() (*sink.Mark, error) {
	text, err := os.ReadFile(p.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	found := new(kept)
	if err := json.Unmarshal(text, found); err != nil || found.Genesis.IsZero() {
		return nil, sink.Refuse("webhook: %s is damaged: restore it, or delete it and begin with "+
			"--from after what the receiver has", p.path)
	}
	if found.Sink != p.sink {
		return nil, sink.Refuse("webhook: %s is the position of the sink %q, and this one is %q; "+
			"nothing was sent. Give this sink another folder, or that name if it is the same "+
			"stream", p.path, found.Sink, p.sink)
	}
	return &found.Mark, nil
}

// write replaces the file, so that after a crash it has the old or the new position.
func (p *positions) write(mark *sink.Mark) error {
	text, err := json.Marshal(kept{*mark, p.sink})
	if err != nil {
		return err
	}
	if err := replace(p.path, append(text, '\n')); err != nil {
		return fmt.Errorf("webhook: keeping the position: %w", err)
	}
	return nil
}

// writeSynced writes a file, and returns once the disk has it.
func writeSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func replace(path string, text []byte) error {
	next := path + ".next"
	if err := writeSynced(next, text); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
