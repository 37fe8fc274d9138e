package state_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// grouped returns groups that have the true verdict, each with another one beside it.
func (c *crossed) grouped(others ...byte) (groups []ledger.VerdictGroup) {
	for _, other := range others {
		group := ledger.VerdictGroup{Shard: c.verdict.Shard,
			IDs: []ledger.Hash{c.verdict.ID, {other}}}
		slices.SortFunc(group.IDs, func(a, b ledger.Hash) int { return bytes.Compare(a[:], b[:]) })
		groups = append(groups, group)
	}
	return groups
}

// A block takes the verdicts of a group that the state waits for, if a majority of the members
// vouch for the group, or for the verdict, in it or by itself.
func TestGroupOfAMajority(t *testing.T) {
	t.Parallel()
	c := newCrossedOf(t, ledger.CrossingVersion)
	c.mustSeal(c.vouched(&ledger.Batch{Carried: []ledger.Carried{c.next}}, 3, 4, 5))
	group := &ledger.Batch{Groups: c.grouped(1)}
	another := &ledger.Batch{Groups: c.grouped(2)}
	single := &ledger.Batch{Verdicts: []ledger.Verdict{c.verdict}}
	both := &ledger.Batch{Verdicts: []ledger.Verdict{c.verdict}, Groups: c.grouped(1, 2)}
	refused := &ledger.Batch{Verdicts: []ledger.Verdict{{ID: c.verdict.ID, Shard: c.verdict.Shard,
		Result: ledger.Result{Code: ledger.InsufficientFunds, Item: ledger.NoItem}}}}
	elsewhere := &ledger.Batch{Groups: c.grouped(1)}
	elsewhere.Groups[0].Shard = 7
	forged := c.vouched(group, 4)[0]
	forged[len(forged)-1] ^= 1 // an id, which the voucher covers
	for name, payloads := range map[string][][]byte{
		"one member":                  c.vouched(group, 3),
		"one member, repeated":        c.vouched(group, 3, 3, 3),
		"one member, in three ways":   append(c.vouched(both, 3), c.vouched(single, 3)...),
		"one, and another shard's":    c.vouched(group, 3, 0, 1, 2),
		"one, and one says refused":   append(c.vouched(group, 3), c.vouched(refused, 4)...),
		"of a shard that has no part": c.vouched(elsewhere, 3, 4, 5),
		"one, and a forged one":       append(c.vouched(group, 3), forged),
	} {
		if draft := c.seal(payloads); draft != nil {
			t.Errorf("%s: a block of %d", name, draft.Len())
		}
	}
	for name, payloads := range map[string][][]byte{
		"the group":           c.vouched(group, 3, 5),
		"the group, by all":   c.vouched(group, 3, 4, 5),
		"a group and one":     append(c.vouched(group, 3), c.vouched(single, 4)...),
		"one and a group":     append(c.vouched(single, 3), c.vouched(group, 4)...),
		"two groups":          append(c.vouched(group, 3), c.vouched(another, 4)...),
		"one against":         append(c.vouched(refused, 5), c.vouched(group, 3, 4)...),
		"all ways":            append(c.vouched(both, 3, 4), c.vouched(single, 5)...),
		"majority and others": append(c.vouched(group, 3, 4), c.vouched(both, 5)...),
	} {
		draft := c.seal(payloads)
		if draft == nil || draft.Len() != 1 {
			t.Errorf("%s: %+v", name, draft)
		}
	}
	block := c.mustSeal(c.vouched(group, 3, 5))
	if code := block.Entry(0).Result.Code; code != ledger.Settled {
		t.Errorf("the result is %s", code)
	}
	if draft := c.seal(c.vouched(group, 3, 4, 5)); draft != nil {
		t.Errorf("a group that is over makes a block of %d", draft.Len())
	}
}

// A chain before ledger.CrossingVersion leaves out batches with groups, as the members do whose
// program cannot decode them.
func TestGroupsNeedTheirVersion(t *testing.T) {
	t.Parallel()
	c := newCrossedOf(t, ledger.GrowthVersion)
	c.mustSeal(c.vouched(&ledger.Batch{Carried: []ledger.Carried{c.next}}, 3, 4, 5))
	single := &ledger.Batch{Verdicts: []ledger.Verdict{c.verdict}}
	both := &ledger.Batch{Verdicts: []ledger.Verdict{c.verdict}, Groups: c.grouped(1)}
	if draft := c.seal(append(c.vouched(both, 3, 4), c.vouched(single, 5)...)); draft != nil {
		t.Errorf("a block of %d", draft.Len())
	}
	draft := c.seal(append(c.vouched(single, 3, 4), c.vouched(both, 5)...))
	if draft == nil || draft.Len() != 1 || draft.Malformed != 1 {
		t.Errorf("draft %+v", draft)
	}
}
