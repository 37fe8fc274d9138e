package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// MaxVerdictGroup bounds the verdicts of a group. MinVerdictGroup is the least number: a verdict
// that would be alone in a group is told and proposed by itself.
const (
	MaxVerdictGroup = 1024
	MinVerdictGroup = 2
)

const groupDomain = "ledgerd/group/1\x00"

// VerdictGroup are good verdicts that a shard gave in one block, for one other shard. Members tell,
// believe and vouch for them together. Which ones are together follows from the shard's chain
// (verdicts.Split), so its members tell the same groups.
type VerdictGroup struct {
	// Shard is the shard that decided.
	Shard ShardID
	// IDs are those of the transactions, ascending, from MinVerdictGroup to MaxVerdictGroup.
	IDs []Hash
}

// ID returns what identifies the group: the SHA-256 of "ledgerd/group/1", a zero byte, the shard as
// 4 bytes, little-endian, and the ids.
func (g *VerdictGroup) ID() Hash {
	said := append(make([]byte, 0, len(groupDomain)+4+HashSize*len(g.IDs)), groupDomain...)
	said = binary.LittleEndian.AppendUint32(said, uint32(g.Shard))
	for i := range g.IDs {
		said = append(said, g.IDs[i][:]...)
	}
	return sha256.Sum256(said)
}

// Verdict returns verdict i of the group.
func (g *VerdictGroup) Verdict(i int) Verdict {
	return Verdict{ID: g.IDs[i], Shard: g.Shard, Result: Result{Code: SetAside, Item: NoItem}}
}

// Validate returns ErrMalformed unless the group has a number of transactions that is allowed, each
// once, in order.
func (g *VerdictGroup) Validate() error {
	if len(g.IDs) < MinVerdictGroup || len(g.IDs) > MaxVerdictGroup {
		return fmt.Errorf("%w: a group of %d verdicts, %d to %d allowed", ErrMalformed, len(g.IDs),
			MinVerdictGroup, MaxVerdictGroup)
	}
	for i := 1; i < len(g.IDs); i++ {
		if bytes.Compare(g.IDs[i-1][:], g.IDs[i][:]) >= 0 {
			return fmt.Errorf("%w: verdict %d of a group is out of order", ErrMalformed, i)
		}
	}
	return nil
}

// VerdictGroupSize returns the most bytes that a group of this many verdicts adds to a batch.
func VerdictGroupSize(verdicts int) int {
	return binary.MaxVarintLen32 + binary.MaxVarintLen16 + HashSize*verdicts
}

func (g *VerdictGroup) append(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(g.Shard))
	to = binary.AppendUvarint(to, uint64(len(g.IDs)))
	for i := range g.IDs {
		to = append(to, g.IDs[i][:]...)
	}
	return to
}

// verdictGroups reads the groups of a batch that has this many verdicts beside them.
func (r *reader) verdictGroups(beside int) []VerdictGroup {
	count := r.Count("groups of verdicts", MaxBatchVerdicts, 2+MinVerdictGroup*HashSize)
	if count == 0 {
		r.Fail("a batch of version 5 without groups")
		return nil
	}
	groups, ids := make([]VerdictGroup, count), beside
	for i := range groups {
		group := &groups[i]
		group.Shard = r.shard()
		group.IDs = make([]Hash, r.Count("verdicts of a group", MaxVerdictGroup, HashSize))
		for j := range group.IDs {
			group.IDs[j] = r.Hash()
		}
		if ids += len(group.IDs); ids > MaxBatchVerdicts {
			r.Fail("a batch of more than %d verdicts", MaxBatchVerdicts)
		}
		if r.Err != nil {
			return nil
		}
		if err := group.Validate(); err != nil {
			r.Fail("group %d: %w", i, err)
		}
	}
	return groups
}

// appendGroupIDs appends what a voucher signs of the groups: their ids.
func appendGroupIDs(to []byte, ids []Hash) []byte {
	to = binary.AppendUvarint(to, uint64(len(ids)))
	for i := range ids {
		to = append(to, ids[i][:]...)
	}
	return to
}

// groupIDs returns the ids of the batch's groups.
func (b *Batch) groupIDs() []Hash {
	if len(b.Groups) == 0 {
		return nil
	}
	ids := make([]Hash, len(b.Groups))
	for i := range ids {
		ids[i] = b.Groups[i].ID()
	}
	return ids
}
