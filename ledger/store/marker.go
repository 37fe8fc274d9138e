package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store/journal"
)

// The tip marker holds the height that the database on this disk must reach, and what there must be
// of the journal, which goes on from there. Its file has four slots
// of one sector each. The parity of a marker's generation selects the two slots into which it is
// written. So a torn write leaves the previous marker intact, and one damaged slot leaves the other
// copy.
//
// Version 2 adds the store's knowledge of durability, version 3 that of the journal. Markers of
// older stores are read as markers without such knowledge. All new markers have version 3, so that
// a program that knows of no journal refuses the store, or version 4, which is the same but says
// that groups of the journal may have records.
const (
	markerFile   = "tip"
	markerSlots  = 4
	slotSize     = 4096
	markerSizeV1 = 8 + 8 + 8 + 2*ledger.HashSize + 8 + 4
	markerSizeV2 = markerSizeV1 + 8 + 8
	markerSize   = markerSizeV2 + 8 + 8
)

var (
	markerMagicV1 = [8]byte{'l', 'e', 'd', 'g', 't', 'i', 'p', '1'}
	markerMagicV2 = [8]byte{'l', 'e', 'd', 'g', 't', 'i', 'p', '2'}
	markerMagic   = [8]byte{'l', 'e', 'd', 'g', 't', 'i', 'p', '3'}
	markerMagicV4 = [8]byte{'l', 'e', 'd', 'g', 't', 'i', 'p', '4'}
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tip is the content of a marker.
type tip struct {
	generation uint64
	genesis    ledger.Hash
	height     ledger.Height
	hash       ledger.Hash
	total      uint64
	// known is the highest height known to be durable when the marker was written. It may be
	// above height.
	known ledger.Height
	// perhaps is the lowest height of the blocks that this disk may have announced and lost; 0 for
	// none.
	perhaps ledger.Height
	// segment is the highest segment of the journal that exists; 0 if there is no journal. group is
	// a group of the journal up to which the database has everything.
	segment, group uint64
	// records says that groups after group may have records.
	records bool
}

var errMarker = errors.New("store: malformed tip marker")

func (t *tip) encode() []byte {
	magic := markerMagic
	if t.records {
		magic = markerMagicV4
	}
	to := append(make([]byte, 0, markerSize), magic[:]...)
	to = binary.BigEndian.AppendUint64(to, t.generation)
	to = append(to, t.genesis[:]...)
	to = binary.BigEndian.AppendUint64(to, uint64(t.height))
	to = append(to, t.hash[:]...)
	to = binary.BigEndian.AppendUint64(to, t.total)
	to = binary.BigEndian.AppendUint64(to, uint64(t.known))
	to = binary.BigEndian.AppendUint64(to, uint64(t.perhaps))
	to = binary.BigEndian.AppendUint64(to, t.segment)
	to = binary.BigEndian.AppendUint64(to, t.group)
	return binary.BigEndian.AppendUint32(to, crc32.Checksum(to, castagnoli))
}

// decodeTip decodes a marker of any version.
func decodeTip(slot []byte) (tip, error) {
	if len(slot) < markerSizeV1 {
		return tip{}, fmt.Errorf("%w: %d bytes", errMarker, len(slot))
	}
	size := markerSizeV1
	switch [8]byte(slot) {
	case markerMagicV1:
	case markerMagicV2:
		size = markerSizeV2
	case markerMagic, markerMagicV4:
		size = markerSize
	default:
		return tip{}, fmt.Errorf("%w: it begins with %q", errMarker, slot[:8])
	}
	if len(slot) < size {
		return tip{}, fmt.Errorf("%w: %d bytes", errMarker, len(slot))
	}
	body, sum := slot[:size-4], binary.BigEndian.Uint32(slot[size-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return tip{}, fmt.Errorf("%w: checksum", errMarker)
	}
	decoded := tip{
		generation: binary.BigEndian.Uint64(body[8:]), genesis: ledger.Hash(body[16:48]),
		height: ledger.Height(binary.BigEndian.Uint64(body[48:])), hash: ledger.Hash(body[56:88]),
		total: binary.BigEndian.Uint64(body[88:]),
	}
	if size >= markerSizeV2 {
		decoded.known = ledger.Height(binary.BigEndian.Uint64(body[96:]))
		decoded.perhaps = ledger.Height(binary.BigEndian.Uint64(body[104:]))
	}
	if size == markerSize {
		decoded.segment = binary.BigEndian.Uint64(body[112:])
		decoded.group = binary.BigEndian.Uint64(body[120:])
		decoded.records = [8]byte(slot) == markerMagicV4
	}
	return decoded, nil
}

// marker is the open marker file.
type marker struct {
	file *os.File
	last tip
	// hides is set if a newer marker than last may have existed and be damaged; see mayHide.
	hides bool
	// older is set if a slot holds a marker of an older version.
	older bool
}

// openMarker reads the newest marker of the folder. found is false if there is no marker file.
func openMarker(dir string) (m *marker, found bool, err error) {
	file, err := os.OpenFile(filepath.Join(dir, markerFile), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("store: tip marker: %w", err)
	}
	m = &marker{file: file}
	var slots [markerSlots]tip // an unreadable slot keeps generation 0, which no marker has
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
		slots[slot] = decoded
		m.older = m.older || [8]byte(data[:]) != markerMagic && !decoded.records
		if valid++; decoded.generation >= m.last.generation {
			m.last = decoded
		}
	}
	if valid == 0 {
		_ = file.Close()
		return nil, true, errMarker
	}
	m.hides = mayHide(slots, m.last.generation)
	if err := m.complete(slots); err != nil {
		_ = file.Close()
		return nil, true, err
	}
	return m, true, nil
}

// complete makes sure that the disk holds both copies of the newest marker. A process that was
// killed while it wrote them may have left only one copy, or both only in memory. Later
// announcements rely on two copies on disk.
func (m *marker) complete(slots [markerSlots]tip) error {
	first := m.last.generation % (markerSlots / 2) * 2
	for slot := first; slot < first+2; slot++ {
		if slots[slot].generation == m.last.generation {
			continue
		}
		var data [slotSize]byte
		copy(data[:], m.last.encode())
		if _, err := m.file.WriteAt(data[:], int64(slot)*slotSize); err != nil {
			return fmt.Errorf("store: tip marker: %w", err)
		}
	}
	if err := journal.SyncData(m.file); err != nil {
		return fmt.Errorf("store: tip marker: %w", err)
	}
	return nil
}

// mayHide reports whether a marker newer than the newest readable one may have been complete, which
// means that it may have announced blocks.
//
// The marker after generation g goes into both slots of the other parity, replacing generation g-1.
// The height in it is announced only after fdatasync has returned. So if that marker was ever
// announced, neither of these slots holds generation g-1 any more. Therefore, if one of these slots
// still holds an older marker, nothing newer was announced: the other slot holds a torn write or a
// damaged old copy. If neither slot can be read, they may have held the newer marker. A marker of
// generation g+2 cannot be hidden, because it would have replaced g itself.
func mayHide(slots [markerSlots]tip, newest uint64) bool {
	other := (newest + 1) % (markerSlots / 2) * 2
	return slots[other].generation == 0 && slots[other+1].generation == 0
}

// createMarker creates the marker file of a new store and makes it durable.
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

// write makes next the current marker under a new generation. It is durable when write returns, and
// no marker of an older version is left, which an older program could go on from.
func (m *marker) write(next tip) error {
	twice := m.older || next.records != m.last.records
	if err := m.put(next); err != nil || !twice {
		return err
	}
	m.older = false
	return m.put(next)
}

func (m *marker) put(next tip) error {
	next.generation = m.last.generation + 1
	var slot [slotSize]byte
	copy(slot[:], next.encode())
	first := int64(next.generation % (markerSlots / 2) * 2)
	for copies := range int64(2) {
		if _, err := m.file.WriteAt(slot[:], (first+copies)*slotSize); err != nil {
			return fmt.Errorf("store: tip marker: %w", err)
		}
	}
	if err := journal.SyncData(m.file); err != nil {
		return fmt.Errorf("store: tip marker: %w", err)
	}
	m.last = next
	return nil
}
