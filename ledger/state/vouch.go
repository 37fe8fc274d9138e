package state

import (
	"bytes"
	"slices"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/ledger"
)

// tallies counts how many members vouch for what in one round, in a book with
// Genesis.VouchedCrossings. A member counts once for a fact, however many batches repeat its
// voucher. Keys of the maps are what members say of one verdict or one number of the stream.
type tallies struct {
	majority int
	verdicts map[ledger.Verdict]*tally
	stream   map[ledger.Vouched]*tally
}

// tally counts the members that say one thing. last is the last member that was counted.
type tally struct{ count, last int }

func (t *tally) add(member int) {
	if t.count == 0 || t.last != member {
		t.count, t.last = t.count+1, member
	}
}

// tally counts the vouchers of a round. The members are those before the block.
func (s *State) tally(batches []*ledger.VerifiedBatch) *tallies {
	if !slices.ContainsFunc(batches, func(b *ledger.VerifiedBatch) bool {
		return b.Voucher != nil
	}) {
		return new(tallies) // no member vouches for anything, as in most rounds
	}
	members := s.group.at(newest).Members
	t := &tallies{majority: clock.Majority(len(members)),
		verdicts: make(map[ledger.Verdict]*tally), stream: make(map[ledger.Vouched]*tally)}
	if s.fault == FaultVouchedByOne {
		t.majority = 1
	}
	for i := range members {
		for _, batch := range batches {
			v := batch.Voucher
			if v == nil || batch.VoucherErr != nil || v.Chain != s.chain ||
				!bytes.Equal(v.Key[:], members[i].Key) {
				continue
			}
			for j := range batch.Verdicts {
				count(t.verdicts, batch.Verdicts[j], i)
			}
			for j := range v.Stream {
				count(t.stream, v.Stream[j], i)
			}
		}
	}
	return t
}

func count[Fact comparable](tallies map[Fact]*tally, fact Fact, member int) {
	if tallies[fact] == nil {
		tallies[fact] = new(tally)
	}
	tallies[fact].add(member)
}

// verdict reports whether enough members vouch for a verdict. In a book without vouchers t is nil,
// and one member is enough.
func (t *tallies) verdict(verdict *ledger.Verdict) bool {
	return t == nil || t.verdicts[*verdict] != nil && t.verdicts[*verdict].count >= t.majority
}

// carried reports whether enough members vouch for entry i of the parent's stream in a batch.
func (t *tallies) carried(batch *ledger.VerifiedBatch, i int) bool {
	if t == nil {
		return true
	}
	if batch.Voucher == nil {
		return false
	}
	found := t.stream[ledger.Vouched{Number: batch.Carried[i].Number, Hash: batch.StreamHashes[i]}]
	return found != nil && found.count >= t.majority
}
