package state

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/pairs"
)

// A block touches entries of the state. Before the first change of each the state keeps its
// encoding in the arena; when the block is finished it brings the digest and the tree of accounts
// up to date, and lists what changed.

// touchAccount notes that the block touches the account. For the LtHash it saves the account's
// encoding from before the block; the tree has its hash.
func (s *State) touchAccount(a *account) {
	if a.mark.touched {
		return
	}
	if s.accountTree == nil {
		a.mark = s.keep(a.appendEntry)
	} else {
		a.mark.touched = true
	}
	s.touchedAccounts = append(s.touchedAccounts, a)
}

func (s *State) touchWindow(w *window) {
	if w.mark.touched {
		return
	}
	if w.empty {
		w.mark = mark{touched: true}
	} else {
		w.mark = s.keep(w.appendEntry)
	}
	s.touchedWindows = append(s.touchedWindows, w)
}

func (s *State) touchRecord(r *record, isNew bool) {
	if r.mark.touched {
		return
	}
	if isNew {
		r.mark = mark{touched: true}
	} else {
		r.mark = s.keep(r.appendEntry)
	}
	s.touchedRecords = append(s.touchedRecords, r)
}

// kept is the place in the arena of an encoding: of its beginning, the value and its end.
type kept struct{ start, value, end int }

// keep keeps the encoding of an entry that the block is about to change for the first time.
func (s *State) keep(appendEntry func([]byte) ([]byte, int)) mark {
	start := len(s.arena)
	var keyLength int
	s.arena, keyLength = appendEntry(s.arena)
	s.kept = append(s.kept, kept{start: start, value: start + keyLength, end: len(s.arena)})
	return mark{touched: true, kept: uint32(len(s.kept))}
}

// before returns the place of the entry's encoding from before the block, and whether there is one.
func (s *State) before(m mark) (kept, bool) {
	if m.kept == 0 {
		return kept{}, false
	}
	return s.kept[m.kept-1], true
}

// finish updates the digest and collects the changes.
func (s *State) finish() *Changes {
	changes := &Changes{History: s.history}
	changes.Entries.places = make([]changeSpan, 0,
		len(s.touchedAccounts)+len(s.touchedWindows)+len(s.touchedOrganisations)+
			len(s.touchedRecords)+len(s.touchedMembers))
	inTree := 0
	if s.accountTree != nil {
		inTree = s.settleAccounts(changes)
	}
	for _, each := range s.touchedAccounts {
		if s.accountTree == nil {
			s.settleEntry(changes, each.mark, each.appendEntry, each.number)
		}
		each.mark = mark{}
		each.touchedAt(s.height)
	}
	for _, each := range s.touchedOrganisations {
		if s.organisations[each.Name] == each {
			s.settle(changes, each.mark, each.appendEntry)
		}
		each.mark = mark{}
	}
	for _, each := range s.touchedWindows {
		s.settle(changes, each.mark, each.appendEntry)
		each.mark = mark{}
	}
	for _, each := range s.touchedRecords {
		s.settle(changes, each.mark, each.appendEntry)
		each.mark = mark{}
	}
	for _, each := range s.touchedMembers {
		s.settle(changes, each.mark, each.appendEntry)
		each.mark = mark{}
	}
	s.touchedAccounts, s.touchedOrganisations, s.touchedWindows, s.touchedRecords =
		s.touchedAccounts[:0], s.touchedOrganisations[:0], s.touchedWindows[:0],
		s.touchedRecords[:0]
	s.touchedMembers = s.touchedMembers[:0]
	s.finishEngines(changes)
	s.finishCancelled(changes)
	s.finishHolds(changes)
	s.finishDetails(changes)
	s.finishSchedules(changes)
	s.finishCharter(changes)
	s.finishGrowth(changes)
	s.finishMoves(changes)
	s.finishCounts(changes)
	s.finishAssets(changes)
	s.finishAliases(changes)
	s.finishReplaced(changes)
	if s.tree != nil {
		s.finishShard(changes)
	}
	if s.accountTree == nil && s.Version() >= ledger.AccountTreeVersion {
		s.digestAll()
	}
	if s.slotTree == nil && s.takesSlotTree() {
		s.beginSlotTree()
	}
	if s.assetTree == nil && s.takesAssetTree() {
		s.assetTree = newAssetTree(s.assets.all)
	}
	s.stateDigest = s.sum()
	changes.Entries.arena = s.arena
	s.history, s.arena, s.arenaSize = nil, nil, len(s.arena)-inTree
	return changes
}

// settledAccount is the place of an account's encoding in the arena, before which there is a
// treeLeaf, and its hash in the tree, with the first bytes of that.
type settledAccount struct {
	kept
	leaf    *ledger.Hash
	begins  uint64
	changed bool
}

// settle brings the hash in the tree up to date, and notes whether that changes it.
func (a *settledAccount) settle(hash *ledger.Hash) {
	a.changed = binary.LittleEndian.Uint64(hash[:]) != a.begins || *hash != *a.leaf
	if a.changed {
		*a.leaf = *hash
	}
}

// settleLeaves brings the hashes of accounts up to date, whose encodings are in the arena. It
// computes two at a time.
func settleLeaves(arena []byte, accounts []settledAccount) {
	var pair pairs.Pair
	data := func(a *settledAccount) []byte { return arena[a.start-1 : a.end] }
	for ; len(accounts) > 1; accounts = accounts[2:] {
		one, other := &accounts[0], &accounts[1]
		hash, otherHash := pair.Sum(data(one), data(other))
		one.settle((*ledger.Hash)(&hash))
		other.settle((*ledger.Hash)(&otherHash))
	}
	if len(accounts) == 1 {
		last := &accounts[0]
		hash := accountHash(arena[last.start:last.end])
		last.settle(&hash)
	}
}

// encode appends the encodings of accounts to the arena, and adds them to settledAccounts. Accounts
// and their hashes in the tree may have left the processor's cache. So it reads both lines of some
// accounts, and their hashes, before it encodes them: it waits for all of them at once.
func (s *State) encode(accounts []*account) {
	first := len(s.settledAccounts)
	for _, each := range accounts {
		leaf := s.accountTree.leaf(each.number)
		s.settledAccounts = append(s.settledAccounts, settledAccount{
			kept: kept{value: each.keyLength()}, leaf: leaf,
			begins: binary.LittleEndian.Uint64(leaf[:])})
	}
	for i, each := range accounts {
		at := &s.settledAccounts[first+i]
		s.arena = append(s.arena, treeLeaf)
		at.start = len(s.arena)
		at.value += at.start
		s.arena, _ = each.appendEntry(s.arena)
		at.end = len(s.arena)
	}
}

// settleAccounts is settle for the touched accounts, which are in the tree. Hashing them takes most
// of the time, and is divided. settleAccounts returns how many bytes of the arena they take.
func (s *State) settleAccounts(changes *Changes) (bytes int) {
	count, before := len(s.touchedAccounts), len(s.arena)
	if count == 0 {
		return 0
	}
	s.arena = slices.Grow(s.arena, count*s.entrySize+s.arenaSize)
	// A new account may move the hashes of others, so all accounts get their leaves first.
	if s.opened > uint64(s.accountTree.accounts()) {
		s.accountTree.grow(int(s.opened))
	}
	s.settledAccounts = s.settledAccounts[:0]
	for some := range slices.Chunk(s.touchedAccounts, lookAhead) {
		s.encode(some)
	}
	bytes = len(s.arena) - before
	s.entrySize = bytes/count + 2
	divided(s.divide, count, func(from, to int) {
		settleLeaves(s.arena, s.settledAccounts[from:to])
	})
	for i, each := range s.touchedAccounts {
		if at := &s.settledAccounts[i]; at.changed {
			s.accountTree.outdate(each.number)
			changes.Entries.note(at.start, at.value-at.start, at.end-at.value, each.number)
		}
	}
	return bytes
}

// settle brings the digest up to date with an entry that is no account's, and lists the change.
func (s *State) settle(changes *Changes, m mark, appendEntry func([]byte) ([]byte, int)) {
	s.settleEntry(changes, m, appendEntry, 0)
}

// settleEntry is settle for any entry. account is the number of the account that it is of, or 0.
func (s *State) settleEntry(changes *Changes, m mark, appendEntry func([]byte) ([]byte, int),
	account uint64) {
	start := len(s.arena)
	var keyLength int
	s.arena, keyLength = appendEntry(s.arena)
	after := s.arena[start:]
	if at, changed := s.before(m); changed {
		before := s.arena[at.start:at.end]
		if bytes.Equal(before, after) {
			return
		}
		s.digest.Remove(before)
	}
	s.digest.Add(after)
	changes.Entries.note(start, keyLength, len(after)-keyLength, account)
}

// remove removes an entry, unless the entry is new in this block.
func (s *State) remove(changes *Changes, m mark) {
	at, exists := s.before(m)
	if !exists {
		return
	}
	s.digest.Remove(s.arena[at.start:at.end])
	changes.Entries.note(at.start, at.value-at.start, 0, 0)
}
