package ledger

// Forward is a bundle of a block that goes to a child shard: entry Number of the stream to it.
// Block.CarriedBundle gives its bytes.
type Forward struct {
	Child  ShardID
	Number uint64
	// Bundle is its index in the block.
	Bundle uint32
}

// OwnVerdict is what this shard says of a cross-shard transaction in the block, and the shards that
// wait for it.
type OwnVerdict struct {
	Verdict
	To []ShardID
}

// Settlement is the end of a transaction's wait for other shards: the block's transaction Index is
// the verdict that ended it.
type Settlement struct {
	ID    Hash
	Index uint32
	// Applied says that it took effect there; otherwise what it had set aside is free again.
	Applied bool
}

// Crossings is what a block did that concerns other shards. It is empty in a book of one shard.
type Crossings struct {
	// Forwards are in the order of their bundles, and within a bundle by child.
	Forwards []Forward
	// Verdicts are in the order of their transactions.
	Verdicts []OwnVerdict
	// Settlements are in the order of the verdicts that ended the waits.
	Settlements []Settlement
	// OutOfPlace counts the transactions with that result. A block with one is not what a correct
	// node makes.
	OutOfPlace int
}

// shardExecution is the part of a state that is in use during a block of a book with several
// shards.
type shardExecution struct {
	touchedStreams []*stream
	touchedSlots   []*slot
	destinations   shardSet
	parts          []part
	forward        []bool
	verdicts       []OwnVerdict
	settlements    []Settlement
}

// executeShard executes the entries of a block, bundle by bundle, and gives what concerns children
// its numbers in their streams.
func (s *State) executeShard(block *Block) Crossings {
	var crossings Crossings
	s.pending.fillSlots()
	s.verdicts, s.settlements = nil, nil
	next := 0
	for b := range block.Bundles {
		seal := &block.Bundles[b]
		inOrder := seal.Number == 0 || s.parent != nil && s.advance(s.parent) == seal.Number
		s.forward = append(s.forward[:0], make([]bool, len(s.children))...)
		for ; next < len(block.Entries) && block.Entries[next].Bundle == b; next++ {
			entry := &block.Entries[next]
			s.index = uint32(next)
			entry.Result = Result{OutOfPlace, NoItem}
			if inOrder {
				entry.Result = s.applyEntry(entry, seal)
			}
			if entry.Result.Code == OutOfPlace {
				crossings.OutOfPlace++
			}
		}
		for c, child := range s.children {
			if s.forward[c] {
				crossings.Forwards = append(crossings.Forwards,
					Forward{Child: child.shard, Number: s.advance(child), Bundle: uint32(b)})
			}
		}
	}
	crossings.Verdicts, crossings.Settlements = s.verdicts, s.settlements
	return crossings
}

// belongs reports whether a client's transaction with these destinations may be in a block of this
// shard. One from the parent's stream concerns something that this shard reaches. One that entered
// here concerns nothing else, and its signer is registered: see doc.go on what is submitted again
// after it failed.
func (s *State) belongs(t *Transaction, destinations []ShardID, number uint64,
	signerKnown bool) bool {
	if number == 0 {
		return s.tree.Covers(s.shard, destinations) && (signerKnown || len(t.Registrations) > 0)
	}
	return s.parent != nil && s.tree.Concerns(s.shard, destinations)
}

// applyEntry executes one transaction at its place, and marks the children that it goes on to.
func (s *State) applyEntry(entry *Entry, seal *BundleSeal) Result {
	t := entry.Transaction
	switch {
	case t.Verdict != nil:
		if t.Ledger != s.ledger || seal.Number != 0 || len(seal.IDs) != 1 ||
			len(seal.Signatures) != 0 {
			return Result{OutOfPlace, NoItem}
		}
		return s.applyVerdict(t.Verdict)
	case t.Change != nil:
		if seal.Number != 0 {
			return Result{OutOfPlace, NoItem}
		}
		return s.apply(t, seal.root, seal.Signatures)
	}
	s.destinations = t.destinations(s.destinations[:0], s.tree.Shards(), s.HomeShard)
	if !s.belongs(t, s.destinations, seal.Number, s.organisations[t.Signer] != nil) {
		return Result{OutOfPlace, NoItem}
	}
	for c, child := range s.children {
		if s.tree.Concerns(child.shard, s.destinations) {
			s.forward[c] = true
		}
	}
	result := s.applyHere(t, seal.root, seal.Signatures)
	if len(t.Registrations) > 0 || len(s.destinations) == 1 || result.Code == Relayed {
		return result
	}
	others := s.destinations.without(s.shard)
	if result.Code == SetAside {
		s.setAside(entry.ID, t, others)
	}
	s.verdicts = append(s.verdicts, OwnVerdict{Verdict: Verdict{ID: entry.ID, Shard: s.shard,
		Result: result}, To: others})
	return result
}

// applyHere executes a client's transaction with the destinations at hand, as far as it is for this
// shard; a cross-shard transaction is only decided on.
func (s *State) applyHere(t *Transaction, root Hash, signatures []Signature) Result {
	switch {
	case !s.destinations.has(s.shard):
		return Result{Relayed, NoItem}
	case len(t.Registrations) > 0:
		result := s.mayRegister(t, signatures, s.Organisation)
		if result.OK() {
			for i := range t.Registrations {
				s.register(&t.Registrations[i], signatures)
			}
		}
		return result
	case len(s.destinations) == 1:
		return s.apply(t, root, signatures)
	}
	s.counter++
	return s.attemptPart(t, signatures)
}

// precheckShard says what would become of a transaction here, see Precheck; what it sets aside is
// not held for those that follow in its bundle.
func (s *State) precheckShard(t *Transaction, root Hash, signatures []Signature) Result {
	switch {
	case t.Verdict != nil:
		return Result{OutOfPlace, NoItem}
	case t.Change != nil:
		return s.apply(t, root, signatures)
	}
	s.destinations = t.destinations(s.destinations[:0], s.tree.Shards(), s.HomeShard)
	return s.applyHere(t, root, signatures)
}

// finishShard collects the changes of streams and of transactions that wait.
func (s *State) finishShard(changes *Changes) {
	for _, each := range s.touchedStreams {
		s.settle(changes, &each.mark, each.appendEntry)
		each.mark = mark{}
	}
	for _, each := range s.touchedSlots {
		if each.entry == nil {
			s.remove(changes, &each.mark)
		} else {
			s.settle(changes, &each.mark, each.appendEntry)
		}
		each.mark = mark{}
	}
	s.touchedStreams, s.touchedSlots = s.touchedStreams[:0], s.touchedSlots[:0]
}
