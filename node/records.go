package node

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// A record in the store's journal (docs/design/rounds.md), little-endian: run u64, height u64, hash
// 32 bytes and last round u64 of what comes before its rounds, and one or two rounds, each after
// its length u32, as encodeRound encodes them.
const recordHeadSize = 8 + 8 + 32 + 8

// encodeRecord implements pipeline.Config.EncodeRecord.
func encodeRecord(r *shard.Record, rounds []order.Delivery) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(r.Run))
	b = binary.LittleEndian.AppendUint64(b, r.Height)
	b = append(b, r.Hash[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.After))
	for i := range rounds {
		content := encodeRound(rounds[i])
		b = binary.LittleEndian.AppendUint32(b, uint32(len(content)))
		b = append(b, content...)
		r.Rounds = append(r.Rounds, generation.TailRound{Round: rounds[i].Round,
			Epoch: rounds[i].Epoch})
	}
	return b
}

// decodeRecord decodes the output of encodeRecord. It returns the contents of the rounds, too,
// which remember keeps and names; the caller may remember more.
func decodeRecord(b []byte, remember func(content []byte) [32]byte) (*shard.Record, error) {
	if len(b) < recordHeadSize {
		return nil, fmt.Errorf("%w: a record of %d bytes", errContents, len(b))
	}
	r := &shard.Record{Run: generation.Run(binary.LittleEndian.Uint64(b)),
		Height: binary.LittleEndian.Uint64(b[8:]), Hash: [32]byte(b[16:48]),
		After: order.Round(binary.LittleEndian.Uint64(b[48:]))}
	for b = b[recordHeadSize:]; len(b) > 0; {
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, fmt.Errorf("%w: a record ends early", errContents)
		}
		end := 4 + binary.LittleEndian.Uint32(b)
		content := b[4:end:end]
		b = b[end:]
		round, err := decodeRound(content)
		if err != nil {
			return nil, err
		}
		named := generation.TailRound{Round: round.Round, Epoch: round.Epoch,
			Content: remember(content)}
		for _, message := range round.Messages {
			named.Origins = append(named.Origins, message.Origin)
		}
		r.Rounds = append(r.Rounds, named)
		if round.Round != r.Last() || len(round.Removed) > 0 {
			return nil, fmt.Errorf("%w: a record has round %d in place of %d", errContents,
				round.Round, r.Last())
		}
	}
	if len(r.Rounds) == 0 {
		return nil, fmt.Errorf("%w: a record without rounds", errContents)
	}
	return r, nil
}

// lastRecord returns the record on the disk, nil for none. The contents of its rounds stay on this
// node, for members that will need them.
func (l *life) lastRecord() (*shard.Record, error) {
	bytes := l.node.Store().LastRecord()
	if bytes == nil {
		return nil, nil
	}
	r, err := decodeRecord(bytes, l.contents.remember)
	if err != nil {
		return nil, fmt.Errorf("the record of rounds in this node's journal: %w", err)
	}
	return r, nil
}
