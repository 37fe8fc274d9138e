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
	// inOrder is what countInOrder returns. verdicts is used if that is nil.
	inOrder  [][]vouchedVerdict
	verdicts map[ledger.Verdict]*tally
	stream   map[ledger.Vouched]*tally
	// groups are counted by their ids. It is nil if there are none. divided are the shards of which
	// members say the same verdicts in different ways, so that the verdicts of groups are counted
	// one by one, too.
	groups  map[ledger.Hash]*tally
	divided map[ledger.ShardID]bool
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
	speakers := make([]int, len(batches))
	for at, batch := range batches {
		speakers[at] = s.speaker(batch, members)
	}
	t.count(batches, speakers, len(members), s.fault == FaultGroupsApart)
	return t
}

// count counts what the speakers of the batches say, -1 for none. They are members below a number.
// apart plants a bug.
func (t *tallies) count(batches []*ledger.VerifiedBatch, speakers []int, members int, apart bool) {
	t.countGroups(batches, speakers, members)
	if apart {
		t.divided = nil
	}
	if len(t.divided) == 0 {
		t.inOrder = countInOrder(batches, speakers, t.majority)
	}
	for i := range members {
		for at, batch := range batches {
			if speakers[at] != i {
				continue
			}
			for j := 0; j < len(batch.Verdicts) && t.inOrder == nil; j++ {
				count(t.verdicts, batch.Verdicts[j], i)
			}
			t.countParts(batch, i)
			for j := range batch.Voucher.Stream {
				count(t.stream, batch.Voucher.Stream[j], i)
			}
		}
	}
}

// speaker returns the index of the member that vouches for what is in a batch, or -1.
func (s *State) speaker(batch *ledger.VerifiedBatch, members []ledger.GroupMember) int {
	v := batch.Voucher
	if v == nil || batch.VoucherErr != nil || v.Chain != s.chain {
		return -1
	}
	return slices.IndexFunc(members, func(m ledger.GroupMember) bool {
		return bytes.Equal(v.Key[:], m.Key)
	})
}

func count[Fact comparable](tallies map[Fact]*tally, fact Fact, member int) {
	if tallies[fact] == nil {
		tallies[fact] = new(tally)
	}
	tallies[fact].add(member)
}

// verdict returns what the round says about verdict i of the batch at a place. It may return enough
// for enoughBefore. In a book without vouchers t is nil, and one member is enough.
func (t *tallies) verdict(place int, batch *ledger.VerifiedBatch, i int) vouchedVerdict {
	if t == nil {
		return enough
	}
	if t.inOrder != nil {
		return t.inOrder[place][i]
	}
	if said := t.verdicts[batch.Verdicts[i]]; said != nil && said.count >= t.majority {
		return enough
	}
	return tooFew
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
