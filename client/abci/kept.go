package abci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/ledger"
)

// kept is what the adapter keeps in its folder: up to where the application was, and the hash that
// it had there. Losing it costs the check of the application's hash and nothing else.
type kept struct {
	Chain   string         `json:"chain_id"`
	Genesis ledger.Hash    `json:"genesis"` // of the ledger's chain
	Shard   ledger.ShardID `json:"shard"`
	Height  ledger.Height  `json:"height"`
	Block   ledger.Hash    `json:"block"`
	AppHash []byte         `json:"app_hash"`
}

const keptName = "adapter.json"

// readKept returns what is kept in a folder, or nil if there is nothing.
func readKept(folder string) (*kept, error) {
	text, err := readBounded(filepath.Join(folder, keptName), maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k := new(kept)
	if err := json.Unmarshal(text, k); err != nil {
		return nil, fmt.Errorf("%s: %w: remove the file to go on without the check of the "+
			"application's hash", filepath.Join(folder, keptName), err)
	}
	return k, nil
}

// lockFolder keeps other adapters out of a folder until the file that it returns is closed. Two
// adapters would feed one application twice. The lock ends with the process, however that ends.
func lockFolder(folder string) (*os.File, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("the adapter's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the adapter's folder: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close() // the first error counts
		return nil, refuse("another adapter uses %s: each one, with its application, needs a "+
			"folder of its own", folder)
	}
	return lock, nil
}

// write replaces the file, so that a crash leaves the old one or the new one.
func (k *kept) write(folder string) (err error) {
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	// The name is always the same, so crashes do not fill the folder.
	file, err := os.OpenFile(filepath.Join(folder, keptName+".new"),
		os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // the first error counts
		}
	}()
	_, err = file.Write(append(text, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), filepath.Join(folder, keptName))
}
