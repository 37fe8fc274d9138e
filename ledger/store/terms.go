package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// The state has the terms of accounts and the assets of the present. A row has those that a block
// replaced, as they were before it. So the terms after a block are those of the first row of a
// later block, or else the present ones. What always holds:
//
//   - Every account and asset that a block above termsFrom replaced has its row in the database, or
//     in the blocks that the database does not have yet. A row with that height is written before
//     any layer, and with each head row a row with the same height. If that is not the height of
//     the head, an earlier version went on with the store, and nothing is known of before the head.
//     So it is in a store that began with a snapshot, until Index has executed all blocks and
//     written their rows. IndexTerms does that for a store of an earlier version.
//   - A row names its block by the hash. That of a layer which a crash undid is never used.

// termsRows passes the rows of what a block replaced to put.
func termsRows(block *ledger.Block, changes *state.Changes, put putRow) error {
	for i := range changes.Replaced {
		replaced := &changes.Replaced[i]
		value := append(slices.Clone(block.Hash[:]), replaced.Before...)
		if err := put("terms", termsKey(replaced.ReplacedKey, block.Header.Height),
			value); err != nil {
			return err
		}
	}
	return nil
}

// termsKey returns the key of the row with what a block replaced.
func termsKey(of state.ReplacedKey, height ledger.Height) []byte {
	kind := byte(rowTerms)
	if of.Asset {
		kind = rowAsset
	}
	return appendStepKey([]byte{kind}, of.Number, uint64(height))
}

// setTermsHeight writes a row with a height: rowTermsFrom or rowTermsTo.
func setTermsHeight(transaction *badger.Txn, kind byte, height ledger.Height) error {
	key := []byte{kind}
	return transaction.Set(key, seal(key, binary.BigEndian.AppendUint64(nil, uint64(height))))
}

// loadTerms reads from which block on rows tell what was replaced. If they tell nothing of before
// the head, it writes that, so that later layers go on from there. The caller makes it durable
// before any layer is written.
func (s *Store) loadTerms(head ledger.Height) error {
	heights := make(map[byte]ledger.Height)
	err := s.db.View(func(transaction *badger.Txn) error {
		for _, kind := range []byte{rowTermsFrom, rowTermsTo} {
			value, err := get(transaction, []byte{kind})
			switch {
			case errors.Is(err, errMissing):
				continue
			case err != nil:
				return damaged(1, "from where terms are known: %v", err)
			case len(value) != 8:
				return damaged(1, "from where terms are known: malformed")
			}
			heights[kind] = ledger.Height(binary.BigEndian.Uint64(value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	from, begun := heights[rowTermsFrom]
	to, goesOn := heights[rowTermsTo]
	if begun && goesOn && from <= head && head == to {
		s.termsFrom.Store(uint64(from))
		return nil
	}
	s.termsFrom.Store(uint64(head))
	s.options.onWrite("terms from")
	err = s.db.Update(func(transaction *badger.Txn) error {
		return errors.Join(setTermsHeight(transaction, rowTermsFrom, head),
			setTermsHeight(transaction, rowTermsTo, head))
	})
	if err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	return nil
}

// TermsFrom returns the height from which on the store knows the terms of accounts, and the assets,
// as they were after each block.
func (s *Store) TermsFrom() ledger.Height { return ledger.Height(s.termsFrom.Load()) }

// replaced looks up what was replaced first by the blocks after a height that the database does not
// have yet.
func (u *unwritten) replaced(of state.ReplacedKey, after ledger.Height) (before []byte,
	by ledger.Height) {
	for _, layer := range u.layers {
		for _, place := range layer.replaced[of] {
			pending := layer.blocks[place.block]
			if height := pending.block.Header.Height; height > after {
				return pending.changes.Replaced[place.index].Before, height
			}
		}
	}
	return nil, 0
}

// replacedAfter returns what was replaced first by the blocks after a height, and by which one; 0
// if it is the same since. The caller gives what memory had, before the database was read, because
// a block leaves memory only once the database has it.
func (s *Store) replacedAfter(of state.ReplacedKey, height ledger.Height, before []byte,
	by ledger.Height) ([]byte, ledger.Height, error) {
	for from := height + 1; ; {
		value, at, err := s.termsRowFrom(of, from)
		if err != nil || at == 0 || s.exists(at) != nil || by != 0 && at >= by {
			return before, by, err
		}
		hash, err := s.hash(at)
		if err != nil {
			return nil, 0, err
		}
		if hash == ledger.Hash(value[:ledger.HashSize]) {
			return value[ledger.HashSize:], at, nil
		}
		from = at + 1 // a crash undid the layer of the row
	}
}

// termsRowFrom returns the first row of an account or asset with a block from a height on, and the
// block's height; 0 if there is none.
func (s *Store) termsRowFrom(of state.ReplacedKey, from ledger.Height) (value []byte,
	at ledger.Height, err error) {
	defer guard(from, &err)
	err = s.view(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.PrefetchValues = false
		settings.Prefix = termsKey(of, 0)[:1+8]
		rows := transaction.NewIterator(settings)
		defer rows.Close()
		rows.Seek(termsKey(of, from))
		if !rows.Valid() {
			return nil
		}
		key := rows.Item().KeyCopy(nil)
		sealed, err := rows.Item().ValueCopy(nil)
		if err != nil {
			return fmt.Errorf("database: %w", err)
		}
		if value, err = unseal(key, sealed); err != nil {
			return err
		}
		if len(key) != 1+8+8 || len(value) < ledger.HashSize {
			return errRow
		}
		at = ledger.Height(binary.BigEndian.Uint64(key[1+8:]))
		return nil
	})
	s.options.onLook()
	if err != nil {
		return nil, 0, damagedUnless(ErrClosed, err, from, "terms of the past")
	}
	return value, at, nil
}

// TermsAt gives an account of this chain the alias and the terms that it had at a place, without
// what was spent. It reports whether they are known; if not, the account keeps those that it has,
// which are those of the present. The account was open at the place.
func (s *Store) TermsAt(account *ledger.Account, place Place) (known bool, err error) {
	of := state.ReplacedKey{Number: account.Number}
	from := s.TermsFrom()
	first := max(place.Height, from)
	s.mutex.RLock()
	before, by := s.unwritten.replaced(of, first)
	s.mutex.RUnlock()
	if before, by, err = s.replacedAfter(of, first, before, by); err != nil {
		return false, err
	}
	alias, standing := account.Alias, account.Standing
	if by > 0 {
		if alias, standing, err = state.AccountTermsBefore(before); err != nil {
			return false, damaged(by, "terms of %s before it: %v", account.Path, err)
		}
	}
	// An account that had no terms yet did not have any before either.
	if place.Height < from && standing != nil {
		return false, nil
	}
	if by == place.Height+1 && place.Entries > 0 {
		if alias, standing, err = s.termsWithin(account.Path, alias, standing, place); err != nil {
			return false, err
		}
	}
	if standing != nil {
		unspent := *standing
		unspent.Spent, standing = nil, &unspent
	}
	account.Alias, account.Standing = alias, standing
	return true, nil
}

// termsWithin makes the changes of an account's terms that the block after a place's height has
// before the place.
func (s *Store) termsWithin(path ledger.AccountPath, alias string,
	standing *ledger.AccountStanding, place Place) (string, *ledger.AccountStanding, error) {
	block, err := s.Block(place.Last())
	if err != nil {
		return "", nil, err
	}
	for i := range min(int(place.Entries), block.Len()) {
		entry := block.Entry(i)
		t := entry.Transaction()
		if t.Account == nil || t.Account.Account != path || !entry.Result.OK() {
			continue
		}
		if standing == nil {
			standing = &ledger.AccountStanding{}
		}
		guards := t.Account.Guards(t.Signer)
		if standing = standing.Next(t.Account, guards); !guards {
			alias = t.Account.Alias
		}
	}
	return alias, standing, nil
}

// AssetThen is a registered asset as of a place in the chain.
type AssetThen struct {
	ledger.Asset
	// Known says that terms and issuances are those of then. Otherwise they are of the present,
	// because the store does not know those of then.
	Known bool
}

// AssetAt returns an asset as of a place, or ErrNotFound if it was not registered there. Its terms
// are those at the place. What was issued is as of the place's height: of a place within a block,
// what its first entries issue does not count. Unlike balances at a place, it is what the chain had
// there: what transactions that waited then took effect with counts as waiting. Errors include
// ErrNotYet.
func (s *Store) AssetAt(ctx context.Context, name ledger.AssetName, place Place) (AssetThen,
	error) {
	if err := s.CheckPlace(place); err != nil {
		return AssetThen{}, err
	}
	asset, known := s.Asset(name)
	if !known {
		return AssetThen{}, errNoAsset(name)
	}
	then, registered, err := s.assetThen(ctx, asset.Number, place)
	if err == nil && !registered {
		err = errNoAsset(name)
	}
	return then, err
}

func errNoAsset(name ledger.AssetName) error {
	return fmt.Errorf("%w: asset %s", ErrNotFound, name)
}

// AssetsAt returns the assets that were registered at a place in the order of their registrations,
// as AssetAt does: at most so many, from the one after the number.
func (s *Store) AssetsAt(ctx context.Context, after uint32, most int, place Place) (
	assets []AssetThen, err error) {
	if err := s.CheckPlace(place); err != nil {
		return nil, err
	}
	for number := after + 1; len(assets) < most; number++ {
		then, registered, err := s.assetThen(ctx, number, place)
		if err != nil || !registered {
			return assets, err // those after it were registered later
		}
		assets = append(assets, then)
	}
	return assets, nil
}

// assetThen returns the asset with a number as of a place, and whether it was registered there.
func (s *Store) assetThen(ctx context.Context, number uint32, place Place) (then AssetThen,
	registered bool, err error) {
	if err := ctx.Err(); err != nil {
		return AssetThen{}, false, err
	}
	of := state.ReplacedKey{Asset: true, Number: uint64(number)}
	s.mutex.RLock()
	if int(number) > s.state.AssetCount() {
		s.mutex.RUnlock()
		return AssetThen{}, false, nil
	}
	then.Asset = copyOfAsset(s.state.AssetAt(int(number)))
	before, by := s.unwritten.replaced(of, place.Height)
	s.mutex.RUnlock()
	if then.Registered > place.Last() {
		return AssetThen{}, false, nil
	}
	if then.Registered == place.Height+1 {
		// There was nothing of it before the place but what its registration and changes say.
		return s.assetWithin(AssetThen{Asset: ledger.Asset{Number: number, Name: then.Name,
			Owner: then.Owner, Registered: then.Registered}, Known: true}, place)
	}
	if place.Height < s.TermsFrom() {
		return then, true, nil
	}
	then.Known = true
	if before, by, err = s.replacedAfter(of, place.Height, before, by); err != nil || by == 0 {
		return then, true, err
	}
	asset, err := state.AssetBefore(uint64(number), before)
	if err != nil {
		return AssetThen{}, false, damaged(by, "asset %s before it: %v", then.Name, err)
	}
	then.Asset = *asset
	if by == place.Height+1 && place.Entries > 0 {
		return s.assetWithin(then, place)
	}
	return then, true, nil
}

// assetWithin makes the changes of an asset's terms that the block after a place's height has
// before the place.
func (s *Store) assetWithin(then AssetThen, place Place) (AssetThen, bool, error) {
	block, err := s.Block(place.Last())
	if err != nil {
		return AssetThen{}, false, err
	}
	for i := range min(int(place.Entries), block.Len()) {
		entry := block.Entry(i)
		change := entry.Transaction().Asset
		if change == nil || change.Asset != then.Name || !entry.Result.OK() {
			continue
		}
		terms := change.AssetTerms.Clone()
		issuances := make([]ledger.Issuance, len(terms.Issuers))
		for j := range then.Issuers {
			at, _ := terms.Issuer(then.Issuers[j].Organisation)
			issuances[at] = then.Issuances[j]
		}
		then.Revision, then.AssetTerms, then.Issuances = change.Number, terms, issuances
	}
	return then, then.Revision > 0, nil
}
