package importer

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// touch is an effect of a line on an account whose balance may not fall below zero.
type touch struct {
	account ledger.AccountPath
	debit   bool
}

// standing is the progress of a line.
type standing uint8

const (
	held   standing = iota // it waits for other lines, or for an opening
	queued                 // it is in its lane, or further
	over                   // it took effect, or failed, in every shard that it concerns
)

// conflicts holds for each account the lines under way that touch it, and thus the lines that a
// later line must wait for. Credits commute; a debit commutes with nothing. The lines of an account
// are therefore at most one debit, and the credits after it. It is enough that later lines wait for
// these, since a line is over only after all lines that it waited for.
//
// Two lines of one lane that keeps its order need not wait for each other to be over: the second
// must only be queued after the first.
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

// add adds a line, which comes after all lines added before, and counts the lines that it must wait
// for.
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

// remove removes a line that is over.
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

// waitFor makes a line wait for an earlier one, as far as necessary.
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

// sameLane reports whether two lines go through the same ordered lane: each concerns one shard
// alone, and the same one.
func (l *line) sameLane(other *line) bool {
	return len(l.shards) == 1 && len(other.shards) == 1 && l.shards[0] == other.shards[0]
}
