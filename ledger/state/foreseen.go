package state

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Foreseen returns the reason why a transaction that no block has must fail, whatever is ordered
// before it. It returns Applied if the transaction may still be applied. known reports whether a
// block of this chain has a transaction; it is asked about the hold that the transaction ends.
//
// Only reasons that stay are foreseen: the time of the chain and the nonces of a stream never go
// back, and a hold that was decided never opens again, nor changes its terms. A missing amount, a
// frozen account or a signature that lacks a key is no such reason, because a transaction that is
// on its way may mend it. The caller must ask again whether a block has the transaction, after the
// answer: one that was applied in between has taken its own nonce.
func (s *State) Foreseen(t *ledger.Transaction, known func(ledger.Hash) bool) ledger.Code {
	if !t.TakesNonce() || t.Change != nil || len(t.Registrations) > 0 ||
		!slices.Contains(s.Destinations(t), s.shard) {
		return ledger.Applied
	}
	if s.deadlinePassed(t) { // a block is never older than its parent
		return ledger.DeadlinePassed
	}
	if s.livesHere(t.Signer) && !s.Fresh(t.Signer, t.Nonce) {
		return ledger.StaleNonce
	}
	if e := t.HoldEnd; e != nil && s.livesHere(e.From.Organisation()) {
		switch _, _, code := s.attemptEnd(t); code {
		case ledger.UnknownHold:
			if s.held.by[e.Hold] != nil || known(e.Hold) {
				return code
			}
		case ledger.HoldDiffers, ledger.HoldOver:
			return code
		}
	}
	return ledger.Applied
}

// livesHere reports whether an organisation is registered, its home is this shard, and it has
// arrived.
func (s *State) livesHere(name ledger.OrganisationName) bool {
	return s.organisations[name] != nil && s.HomeShard(name) == s.shard && s.LivesHere(name)
}
