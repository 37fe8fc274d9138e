package state

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Correct members list the verdicts that they vouch for in the same order: by the transaction's id,
// then the shard, then the subject (verdicts.Exchange.Propose). So one pass over all lists side by
// side counts them, and each verdict is looked up in the state only once. Lists in another order
// are counted in maps, with the same result.

// vouchedVerdict is what a round says about one verdict in one of its batches.
type vouchedVerdict uint8

const (
	// tooFew members vouch for the verdict.
	tooFew vouchedVerdict = iota
	// enough members vouch for it, and no batch before has it.
	enough
	// enoughBefore is enough, and a batch before has it, too.
	enoughBefore
)

// voice is what a member says in a round: its verdicts that are not counted yet, and what the round
// says about them.
type voice struct {
	verdicts []ledger.Verdict
	says     []vouchedVerdict
}

// countInOrder returns what the round says about each verdict, batch by batch. It returns nil if
// one of the lists is in another order, or if the list of a batch is not that of one member alone.
// Speakers are the members that vouch for the batches, or -1.
func countInOrder(batches []*ledger.VerifiedBatch, speakers []int,
	majority int) [][]vouchedVerdict {
	voices, members := make([]voice, 0, len(batches)), make([]int, 0, len(batches))
	said := make([][]vouchedVerdict, len(batches))
	for i, batch := range batches {
		if len(batch.Verdicts) == 0 {
			continue
		}
		by := speakers[i]
		if by < 0 || slices.Contains(members, by) || !ascending(batch.Verdicts) {
			return nil
		}
		said[i] = make([]vouchedVerdict, len(batch.Verdicts))
		members = append(members, by)
		voices = append(voices, voice{batch.Verdicts, said[i]})
	}
	for next := leastOf(voices); next != nil; next = leastOf(voices) {
		countNext(voices, *next, majority)
	}
	return said
}

// ascending reports whether verdicts are in order, each on another transaction or of another shard.
func ascending(verdicts []ledger.Verdict) bool {
	for i := 1; i < len(verdicts); i++ {
		if compareVerdicts(&verdicts[i-1], &verdicts[i]) >= 0 {
			return false
		}
	}
	return true
}

// compareVerdicts orders verdicts by transaction, then shard, then subject.
func compareVerdicts(a, b *ledger.Verdict) int {
	if order := bytes.Compare(a.ID[:], b.ID[:]); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Subject(), b.Subject()))
}

// leastOf returns the least of the verdicts that are not counted yet, or nil.
func leastOf(voices []voice) (least *ledger.Verdict) {
	for i := range voices {
		if left := voices[i].verdicts; len(left) > 0 &&
			(least == nil || compareVerdicts(&left[0], least) < 0) {
			least = &left[0]
		}
	}
	return least
}

// countNext counts the voices on one verdict: the one that comes next in each of them that has it.
func countNext(voices []voice, next ledger.Verdict, majority int) {
	saysIt := func(v *voice) bool {
		return len(v.verdicts) > 0 && v.verdicts[0].Shard == next.Shard &&
			v.verdicts[0].ID == next.ID && v.verdicts[0].Subject() == next.Subject()
	}
	result, found := majorityOf(voices, saysIt, majority)
	before := false
	for i := range voices {
		v := &voices[i]
		if !saysIt(v) {
			continue
		}
		if found && v.verdicts[0].Result == result {
			if v.says[0] = enough; before {
				v.says[0] = enoughBefore
			}
			before = true
		}
		v.verdicts, v.says = v.verdicts[1:], v.says[1:]
	}
}

// majorityOf returns the result that enough voices say of the next verdict, if there is one.
func majorityOf(voices []voice, saysIt func(*voice) bool, majority int) (result ledger.Result,
	found bool) {
	for i := range voices {
		if !saysIt(&voices[i]) {
			continue
		}
		result, count := voices[i].verdicts[0].Result, 0
		for j := range voices {
			if saysIt(&voices[j]) && voices[j].verdicts[0].Result == result {
				count++
			}
		}
		if count >= majority {
			return result, true
		}
	}
	return ledger.Result{}, false
}
