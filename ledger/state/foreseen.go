package state

import "github.com/ledgerd/ledgerd/ledger"

// A node may refuse a transaction that is certain to fail, so that it costs no block. Others are on
// their way meanwhile, at this node and at others, and nobody knows in what order they come. So
// only what they cannot mend is certain:
//
//   - Time never goes back. So a deadline that is over stays over, and so do a hold and the time to
//     refund an entry.
//   - A nonce that was taken stays taken, and so does one that is too far below the highest one.
//   - A hold that ended never opens again, and one that is open never changes its terms. An entry
//     that cannot be refunded any more never can again.
//
// What always holds:
//
//   - A transaction that is foreseen to fail, and that is in no block up to then, fails in whatever
//     block it comes. That needs a shard that the transaction concerns for certain, whatever is
//     registered in between: the home of an organisation that is registered. Its word suffices,
//     since all shards of a transaction have to agree.
//   - Nothing is foreseen of a transaction with an organisation that ever moved. It may be in the
//     chain of its old home, where it took effect, and unknown at the new one.
//   - Missing amounts, keys, accounts and assets, frozen and closed accounts, and quotas are left
//     to the chain: what is on its way may mend most of them, and accounts may be cold. So are
//     changes of policies, charters, terms and shards, which are rare, and cancellations, of which
//     the refusal by a chain says something.

// Foreseen returns the reason why a transaction that no block of this chain has must fail, whatever
// is ordered before it, or Applied if it may still be applied. at is the time of the last block.
// known says that a block of this chain has the transaction that placed the hold which this one
// ends, or the entry which it refunds (Transaction.Antecedent), with a result that took its nonce
// (KnownByNonce): one that failed may be applied yet, at a new home of its organisation. One that
// only comes after this call may not count. The reason is one of ledger.Code.Foreseeable.
//
// The caller must find out afterwards that no block has the transaction: one that was applied has
// taken its own nonce. And the answer is as final as the last block is.
func (s *State) Foreseen(t *ledger.Transaction, at ledger.Milliseconds,
	known bool) ledger.Code {
	if !t.TakesNonce() || t.Change != nil || len(t.Registrations) > 0 ||
		s.MovedBefore(t) && s.fault != FaultForeseenAfterMove {
		return ledger.Applied
	}
	if s.fault == FaultForeseenEarly {
		at += impatience * 20
	}
	signs := s.livesHere(t.Signer)
	holds := t.HoldEnd != nil && s.livesHere(t.HoldEnd.From.Organisation())
	refunds := t.Details != nil && t.Details.Refund != nil &&
		s.livesHere(t.Details.Refund.Organisation)
	switch {
	case !signs && !holds && !refunds:
		return ledger.Applied
	case t.Deadline != 0 && at >= t.Deadline:
		return ledger.DeadlinePassed
	case signs && !s.Fresh(t.Signer, t.Nonce):
		return ledger.StaleNonce
	case signs && t.Hold != nil && t.Hold.Expires <= at:
		return ledger.HoldTime
	case signs && t.Details != nil && t.Details.Refundable != 0 && t.Details.Refundable <= at:
		return ledger.RefundTime
	case holds:
		return s.foreseenEnd(t, at, known)
	case refunds:
		return s.foreseenRefund(t.Details.Refund, at, known)
	}
	return ledger.Applied
}

// foreseenEnd is Foreseen for the hold that a transaction ends in this shard.
func (s *State) foreseenEnd(t *ledger.Transaction, at ledger.Milliseconds,
	known bool) ledger.Code {
	_, _, code := s.attemptEnd(t, at)
	switch code {
	case ledger.UnknownHold:
		if known || s.held.by[t.HoldEnd.Hold] != nil { // it is on another account
			return code
		}
	case ledger.HoldDiffers, ledger.HoldOver:
		return code
	}
	return ledger.Applied // or another transaction is about to end the hold, and may be released
}

// foreseenRefund is Foreseen for a refund of an entry whose signer lives in this shard. An entry
// that is refunded right now has its row until the refund took effect, and gets it back if not.
func (s *State) foreseenRefund(refund *ledger.Refund, at ledger.Milliseconds,
	known bool) ledger.Code {
	found := s.details.refundable[refund.Entry]
	switch {
	case found == nil && known, found != nil && found.of != refund.Organisation:
		return ledger.UnknownRefundable
	case found != nil && found.waits == (ledger.Hash{}) && at >= found.expires:
		return ledger.RefundOver
	}
	return ledger.Applied
}

// livesHere reports whether an organisation is registered, and its home is this shard.
func (s *State) livesHere(name ledger.OrganisationName) bool {
	return s.organisations[name] != nil && s.HomeShard(name) == s.shard
}
