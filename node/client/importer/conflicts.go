package importer

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// touch is what a line does to an account whose balance may not fall below zero.
type touch struct {
	account ledger.AccountPath
	debit   bool
}

// standing is how far a line has come.
type standing uint8

const (
	held   standing = iota // it waits for other lines, or for an opening
	queued                 // it is in its lane, or further
	over                   // it took effect, or failed, in every shard that it concerns
)

// conflicts knows for each account the lines under way that touch it, and so for which of them
// another line has to wait. Credits commute; a debit commutes with nothing. So an account's lines
// are a debit, or none, and credits after it. That later lines wait for these only is enough: a
// line is over only after all that it waited for.
//
// Two lines of one lane that keeps its order need no waiting: the second has to be queued after the
// first, and that is all.
type conflicts struct {
	accounts map[ledger.AccountPath]*accountLines
}

type accountLines struct {
	debit   *line
	credits []*line
}

func newConflicts() *conflicts {
	return &conflicts{accounts: make(map[ledger.AccountPath]*accountLines)}
}

// add notes a line, which comes after all that were added, and counts what it has to wait for.
func (c *conflicts) add(l *line) {
	for _, each := range l.touches {
		found := c.accounts[each.account]
		if found == nil {
			found = &accountLines{}
			c.accounts[each.account] = found
		}
		if found.debit != nil {
			l.waitFor(found.debit)
		}
		if !each.debit {
			found.credits = append(found.credits, l)
			continue
		}
		for _, credit := range found.credits {
			l.waitFor(credit)
		}
		found.debit, found.credits = l, nil
	}
}

// remove forgets a line that is over.
func (c *conflicts) remove(l *line) {
	for _, each := range l.touches {
		found := c.accounts[each.account]
		if found == nil {
			continue
		}
		if found.debit == l {
			found.debit = nil
		} else if at := slices.Index(found.credits, l); at >= 0 {
			found.credits = slices.Delete(found.credits, at, at+1)
		}
		if found.debit == nil && len(found.credits) == 0 {
			delete(c.accounts, each.account)
		}
	}
}

// waitFor makes a line wait for an earlier one, as far as it has to.
func (l *line) waitFor(earlier *line) {
	switch {
	case earlier.standing == over:
	case !l.sameLane(earlier):
		earlier.onOver = append(earlier.onOver, l)
		l.waits++
	case earlier.standing == held:
		earlier.onQueued = append(earlier.onQueued, l)
		l.waits++
	}
}

// sameLane tells whether two lines go the same way in their order: both concern one shard alone,
// the same.
func (l *line) sameLane(other *line) bool {
	return len(l.shards) == 1 && len(other.shards) == 1 && l.shards[0] == other.shards[0]
}
