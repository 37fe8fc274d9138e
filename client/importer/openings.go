package importer

import (
	"crypto/sha256"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
)

// Bounds of openings.
const (
	// maxOpened bounds each of the two generations of accounts that are remembered as open. A
	// forgotten account is opened again, which changes nothing.
	maxOpened = 1 << 16
	// maxAgain bounds how often an opening gets another nonce.
	maxAgain = 4
)

// openings tracks the accounts that are open, or about to be. A transaction that crosses shards may
// not open any, so its accounts are opened before it.
type openings struct {
	recent, older map[accountHash]struct{}
	underWay      map[ledger.AccountPath]*opening
	salt          uint64 // of the run, for nonces that no run has used
}

type accountHash [16]byte

func hashOf(account ledger.AccountPath) (hash accountHash) {
	sum := sha256.Sum256([]byte(account))
	copy(hash[:], sum[:])
	return hash
}

func newOpenings() *openings {
	return &openings{recent: make(map[accountHash]struct{}), older: make(map[accountHash]struct{}),
		underWay: make(map[ledger.AccountPath]*opening), salt: 1 + rand.Uint64N(1<<16)}
}

func (o *openings) isOpen(account ledger.AccountPath) bool {
	hash := hashOf(account)
	_, recent := o.recent[hash]
	_, older := o.older[hash]
	return recent || older
}

func (o *openings) noteOpen(account ledger.AccountPath) {
	if len(o.recent) >= maxOpened {
		o.recent, o.older = make(map[accountHash]struct{}), o.recent
	}
	o.recent[hashOf(account)] = struct{}{}
}

// need makes a line wait for the openings of the accounts in one of its own openings. It reports
// whether that opening must be submitted: it must if an account is neither open nor about to be.
func (o *openings) need(its *opening) bool {
	mine := false
	for i := range its.transaction.Openings {
		account := its.transaction.Openings[i].Account
		if o.isOpen(account) {
			continue
		}
		if other := o.underWay[account]; other != nil {
			if other != its {
				other.waiters = append(other.waiters, its.line)
				its.line.waits++
			}
			continue
		}
		o.underWay[account] = its
		mine = true
	}
	if mine {
		its.begun = true
		its.waiters = append(its.waiters, its.line)
		its.line.waits++
	}
	return mine
}

// end removes an opening that is over, and returns the lines that waited for it.
func (o *openings) end(its *opening, open bool) []*line {
	for i := range its.transaction.Openings {
		account := its.transaction.Openings[i].Account
		if open {
			o.noteOpen(account)
		}
		if o.underWay[account] == its {
			delete(o.underWay, account)
		}
	}
	waiters := its.waiters
	its.waiters = nil
	return waiters
}

// retry gives another nonce to an opening whose nonce came too late, and reports whether it may be
// submitted again. An earlier run may have continued without this opening, since it knew that the
// account was open. Opening it again changes nothing, whatever the nonce.
func (o *openings) retry(its *opening, code string) bool {
	if code != api.ReasonCode(ledger.StaleNonce) || its.again == maxAgain {
		return false
	}
	its.again++
	its.transaction.Nonce.Stream += nonceStreams * o.salt
	return true
}
