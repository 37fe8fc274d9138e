package node

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
)

// errAnnouncement says that bytes are no announcement.
var errAnnouncement = errors.New("node: malformed announcement")

const (
	announcementVersion = 1
	announcementFixed   = 1 + 1 + 5*8 + ledger.HashSize // before the two texts
	announcementText    = 256
)

// announcement is what a node tells the others of itself, on the lane "control": several times a second, and after each sync of its disk.
//
// The layout, little-endian: version u8, mode u8, generation u64, decided u64, ordered u64, stored u64, durable u64, tip 32 bytes, then two texts, each with its length
// in one byte: API address, engine.
type announcement struct {
	mode       api.NodeMode
	generation uint64 // in which the sender orders; 0 for none
	decided    uint64 // the latest generation that the sender knows a decision of
	heights    api.Heights
	tip        ledger.Hash // the block at heights.Ordered
	apiAddress string
	engine     string
}

func (a *announcement) encode() []byte {
	b := make([]byte, 0, announcementFixed+2+len(a.apiAddress)+len(a.engine))
	b = append(b, announcementVersion, byte(a.mode))
	for _, number := range []uint64{a.generation, a.decided, uint64(a.heights.Ordered), uint64(a.heights.Stored), uint64(a.heights.Durable)} {
		b = binary.LittleEndian.AppendUint64(b, number)
	}
	b = append(b, a.tip[:]...)
	for _, text := range []string{a.apiAddress, a.engine} {
		text = text[:min(len(text), announcementText-1)]
		b = append(append(b, byte(len(text))), text...)
	}
	return b
}

func decodeAnnouncement(b []byte) (a announcement, err error) {
	if len(b) < announcementFixed || b[0] != announcementVersion {
		return a, fmt.Errorf("%w: %d bytes", errAnnouncement, len(b))
	}
	a.mode = api.NodeMode(b[1])
	numbers := [5]uint64{}
	for i := range numbers {
		numbers[i] = binary.LittleEndian.Uint64(b[2+8*i:])
	}
	a.generation, a.decided = numbers[0], numbers[1]
	a.heights = api.Heights{Ordered: ledger.Height(numbers[2]), Stored: ledger.Height(numbers[3]), Durable: ledger.Height(numbers[4])}
	copy(a.tip[:], b[announcementFixed-ledger.HashSize:])
	rest := b[announcementFixed:]
	for _, text := range []*string{&a.apiAddress, &a.engine} {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return a, fmt.Errorf("%w: a text ends early", errAnnouncement)
		}
		end := 1 + int(rest[0])
		*text, rest = string(rest[1:end]), rest[end:]
	}
	if len(rest) != 0 || a.mode < api.ModeStarting || a.mode > api.ModeStopping {
		return a, fmt.Errorf("%w: mode %d, %d bytes too many", errAnnouncement, a.mode, len(rest))
	}
	return a, nil
}
