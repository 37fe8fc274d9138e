package state

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// The state has the terms of the present only. So that a store can keep those of the past, each
// block lists the terms of accounts, and the assets, that it replaced, as they were before it.

// Replaced is what a block replaced: the terms of an account and its alias, or a registered asset.
// A block lists each account and asset at most once, even if its transactions changed it several
// times, or changed it back.
type Replaced struct {
	ReplacedKey
	// Before is what there was before the block. AccountTermsBefore or AssetBefore decodes it.
	Before []byte
}

// ReplacedKey says what was replaced: an account or else an asset, by its number in the chain.
type ReplacedKey struct {
	Asset  bool
	Number uint64
}

// keepTerms lists the terms of an account that the block is about to change. An account that the
// block opened is listed, too: it had its first terms within the block.
func (s *State) keepTerms(a *account) {
	key := ReplacedKey{Number: a.number}
	if _, again := s.replacedAccounts[a.number]; again {
		return
	}
	if s.replacedAccounts == nil {
		s.replacedAccounts = make(map[uint64]struct{})
	}
	s.replacedAccounts[a.number] = struct{}{}
	before := codec.AppendString(nil, a.alias())
	if standing := a.standing(); standing != nil {
		// What was spent changes with each debit, and is not kept.
		unspent := *standing
		unspent.Spent = make([]ledger.Spent, len(standing.Limits))
		before = unspent.AppendStanding(before)
	}
	s.replaced = append(s.replaced, Replaced{key, before})
}

// keepAsset lists an asset that the block is about to change for the first time, unless the block
// registers it.
func (s *State) keepAsset(a *asset) {
	if a.Revision == 0 {
		return
	}
	entry, keyLength := a.appendEntry(nil)
	s.replaced = append(s.replaced, Replaced{ReplacedKey{Asset: true, Number: uint64(a.Number)},
		entry[keyLength:]})
}

// finishReplaced hands over what the block replaced.
func (s *State) finishReplaced(changes *Changes) {
	changes.Replaced, s.replaced = s.replaced, nil
	clear(s.replacedAccounts)
}

// AccountTermsBefore decodes what an account had: its alias, and its terms without what was spent,
// nil if it had none yet.
func AccountTermsBefore(before []byte) (alias string, standing *ledger.AccountStanding, err error) {
	r := read(before)
	alias = string(r.Bytes("bytes of alias", ledger.MaxAlias))
	if r.Err == nil && len(r.Data) > 0 {
		standing = r.restoreStanding()
	}
	return alias, standing, r.End()
}

// AssetBefore decodes an asset as it was.
func AssetBefore(number uint64, before []byte) (*ledger.Asset, error) {
	entry, keyLength := (&ledger.Asset{Number: uint32(number)}).AppendEntry(nil)
	return ledger.DecodeAsset(entry[:keyLength], before)
}
