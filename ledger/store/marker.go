package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/ledger"
)

// The tip marker says how far the chain on this disk must reach. Its file has four slots of a sector each. A marker is written into two
// slots, those of its generation's parity, so that a torn write leaves the marker before intact, and one damaged slot leaves the other copy.
const (
	markerFile  = "tip"
	markerSlots = 4
	slotSize    = 4096
	markerSize  = 8 + 8 + 8 + 2*ledger.HashSize + 8 + 4
)

var markerMagic = [8]byte{'l', 'e', 'd', 'g', 't', 'i', 'p', '1'}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tip is what a marker says.
type tip struct {
	generation uint64
	genesis    ledger.Hash
	height     ledger.Height
	hash       ledger.Hash
	total      uint64
}

var errMarker = errors.New("store: malformed tip marker")

func (t *tip) encode() []byte {
	to := append(make([]byte, 0, markerSize), markerMagic[:]...)
	to = binary.BigEndian.AppendUint64(to, t.generation)
	to = append(to, t.genesis[:]...)
	to = binary.BigEndian.AppendUint64(to, uint64(t.height))
	to = append(to, t.hash[:]...)
	to = binary.BigEndian.AppendUint64(to, t.total)
	return binary.BigEndian.AppendUint32(to, crc32.Checksum(to, castagnoli))
}

func decodeTip(slot []byte) (tip, error) {
	if len(slot) < markerSize {
		return tip{}, fmt.Errorf("%w: %d bytes", errMarker, len(slot))
	}
	body, sum := slot[:markerSize-4], binary.BigEndian.Uint32(slot[markerSize-4:])
	if [8]byte(body) != markerMagic || crc32.Checksum(body, castagnoli) != sum {
		return tip{}, fmt.Errorf("%w: checksum", errMarker)
	}
	return tip{
		generation: binary.BigEndian.Uint64(body[8:]), genesis: ledger.Hash(body[16:48]), height: ledger.Height(binary.BigEndian.Uint64(body[48:])),
		hash: ledger.Hash(body[56:88]), total: binary.BigEndian.Uint64(body[88:]),
	}, nil
}

// marker is the open marker file.
type marker struct {
	file *os.File
	last tip
}

// openMarker reads the newest marker of the folder; found is false where there is no file.
func openMarker(dir string) (m *marker, found bool, err error) {
	file, err := os.OpenFile(filepath.Join(dir, markerFile), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("store: tip marker: %w", err)
	}
	m = &marker{file: file}
	valid := 0
	for slot := range markerSlots {
		var data [markerSize]byte
		if _, err := file.ReadAt(data[:], int64(slot)*slotSize); err != nil {
			continue
		}
		decoded, err := decodeTip(data[:])
		if err != nil {
			continue
		}
		if valid++; decoded.generation >= m.last.generation {
			m.last = decoded
		}
	}
	if valid == 0 {
		_ = file.Close()
		return nil, true, errMarker
	}
	return m, true, nil
}

// createMarker makes the marker file of a new store, durably.
func createMarker(dir string, genesis ledger.Hash) (*marker, error) {
	temporary := filepath.Join(dir, markerFile+".new")
	file, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: tip marker: %w", err)
	}
	m := &marker{file: file}
	for range markerSlots / 2 {
		if err = m.write(tip{genesis: genesis, hash: genesis}); err != nil {
			break
		}
	}
	if err == nil {
		err = os.Rename(temporary, filepath.Join(dir, markerFile))
	}
	if err == nil {
		err = syncDirectory(dir)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("store: tip marker: %w", err)
	}
	return m, nil
}

// write makes next the marker, durably, under a new generation.
func (m *marker) write(next tip) error {
	next.generation = m.last.generation + 1
	var slot [slotSize]byte
	copy(slot[:], next.encode())
	first := int64(next.generation % (markerSlots / 2) * 2)
	for copies := range int64(2) {
		if _, err := m.file.WriteAt(slot[:], (first+copies)*slotSize); err != nil {
			return fmt.Errorf("store: tip marker: %w", err)
		}
	}
	if err := syncData(m.file); err != nil {
		return fmt.Errorf("store: tip marker: %w", err)
	}
	m.last = next
	return nil
}
