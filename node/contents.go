package node

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/order"
)

// errContents reports that bytes are not the contents of a round.
var errContents = errors.New("node: malformed contents of a round")

// encodeRound encodes the contents of a round. Generations name them by their sha256. Layout,
// little-endian: epoch u64 (the chain's), round u64, the number of messages u32, each message
// (origin u32, length of the payload u32, payload), the number of removed servers u32, each removed
// server u32.
func encodeRound(d order.Delivery) []byte {
	size := 8 + 8 + 4 + 4 + 4*len(d.Removed)
	for _, m := range d.Messages {
		size += 8 + len(m.Payload)
	}
	b := make([]byte, 0, size)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Epoch))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Round))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(d.Messages)))
	for _, m := range d.Messages {
		b = binary.LittleEndian.AppendUint32(b, uint32(m.Origin))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Payload)))
		b = append(b, m.Payload...)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(d.Removed)))
	for _, server := range d.Removed {
		b = binary.LittleEndian.AppendUint32(b, uint32(server))
	}
	return b
}

// decodeRound decodes the output of encodeRound. Payloads share its memory.
func decodeRound(b []byte) (d order.Delivery, err error) {
	short := false
	take := func(size uint64) []byte {
		if size > uint64(len(b)) {
			short, b = true, nil
			return nil
		}
		taken := b[:size:size]
		b = b[size:]
		return taken
	}
	number := func(size uint64) uint64 {
		if taken := take(size); taken == nil {
			return 0
		} else if size == 4 {
			return uint64(binary.LittleEndian.Uint32(taken))
		} else {
			return binary.LittleEndian.Uint64(taken)
		}
	}
	d.Epoch, d.Round = order.Epoch(number(8)), order.Round(number(8))
	for count := number(4); count > 0 && !short; count-- {
		origin := order.ServerID(number(4))
		d.Messages = append(d.Messages, order.Message{Origin: origin, Payload: take(number(4))})
	}
	for count := number(4); count > 0 && !short; count-- {
		d.Removed = append(d.Removed, order.ServerID(number(4)))
	}
	if short || len(b) != 0 {
		return order.Delivery{}, fmt.Errorf("%w: %d bytes left, short %v", errContents, len(b),
			short)
	}
	return d, nil
}

// contents keeps rounds that a generation may begin with, by their sha256. Rounds that the own
// engine voted for stay in memory. Rounds that the synod wants on this disk are files.
type contents struct {
	dir string

	mu     sync.Mutex
	memory map[[sha256.Size]byte][]byte
}

func newContents(dir string) *contents {
	return &contents{dir: dir, memory: map[[sha256.Size]byte][]byte{}}
}

func (c *contents) path(hash [sha256.Size]byte) string {
	return filepath.Join(c.dir, hex.EncodeToString(hash[:]))
}

// remember keeps contents as long as this process lives, and returns their hash.
func (c *contents) remember(content []byte) [sha256.Size]byte {
	hash := sha256.Sum256(content)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory[hash] = content
	return hash
}

// forgetVotes drops the rounds in memory. The votes of a later engine take their place.
func (c *contents) forgetVotes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.memory)
}

// get returns contents, or nil if they are not on this node.
func (c *contents) get(hash [sha256.Size]byte) []byte {
	c.mu.Lock()
	content := c.memory[hash]
	c.mu.Unlock()
	if content != nil {
		return content
	}
	content, err := os.ReadFile(c.path(hash))
	if err != nil || sha256.Sum256(content) != hash {
		return nil
	}
	return content
}

// keep writes contents to the disk.
func (c *contents) keep(content []byte) error {
	hash := sha256.Sum256(content)
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	return home.WriteFile(c.path(hash), content, 0o644)
}

// kept lists the contents on the disk, and removes damaged files.
func (c *contents) kept() ([][sha256.Size]byte, error) {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var hashes [][sha256.Size]byte
	for _, entry := range entries {
		path := filepath.Join(c.dir, entry.Name())
		name, err := hex.DecodeString(entry.Name())
		content, failure := os.ReadFile(path)
		if err != nil || failure != nil || len(name) != sha256.Size ||
			sha256.Sum256(content) != [sha256.Size]byte(name) {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		hashes = append(hashes, [sha256.Size]byte(name))
	}
	return hashes, err
}

// clear removes all contents from the disk but those of the given decision. A member that learns of
// that decision late asks for its rounds.
func (c *contents) clear(but *generation.Decision) error {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		wanted := but != nil && slices.ContainsFunc(but.Tail, func(r generation.TailRound) bool {
			return hex.EncodeToString(r.Content[:]) == entry.Name()
		})
		if !wanted {
			err = errors.Join(err, os.Remove(filepath.Join(c.dir, entry.Name())))
		}
	}
	return err
}
