package shards

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// How much of each task the goroutine does before it turns to the next.
const (
	judgeTurn, answerTurn, tellTurn = 1024, 4, 32
	// judgeTries bounds how often a verdict is judged while blocks are executed at the same time.
	judgeTries = 4
	// lookShare times the duration of a look at the waiting transactions is the minimum pause
	// before the next look.
	lookShare = 20
)

// run is the goroutine of Verdicts. Only this goroutine reads the chain.
func (v *Verdicts) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var changed <-chan struct{} // stays nil where the members do not matter
	if v.config.Vouched {
		changed = v.config.Directory.Changed()
		v.recount() // the members may have changed since the words got their shares
	}
	for {
		select {
		case <-v.closed:
			return
		case <-changed:
			changed = v.config.Directory.Changed()
			v.recount()
		case <-v.wake:
		case <-timer.C:
		}
		chain := v.config.Store()
		if chain == nil {
			continue // Reset will follow
		}
		more := v.judge(chain)
		more = v.answer(chain) || more
		more = v.tell(chain) || more
		v.ask(chain, time.Now())
		if more {
			v.nudge()
		}
		now := time.Now()
		v.mu.Lock()
		again := v.awaited.again(v.config.AgainAfter)
		v.mu.Unlock()
		if earliest := v.reminded.Add(v.config.AgainAfter); again.Before(earliest) &&
			!again.IsZero() {
			again = earliest // no batch takes verdicts at present
		}
		if !again.IsZero() && !now.Before(again) {
			v.reminded = now
			v.config.Ready()
			again = now.Add(v.config.AgainAfter)
		}
		// With nothing to wait for, the goroutine sleeps until it is woken.
		next := v.look
		if next.IsZero() || !again.IsZero() && again.Before(next) {
			next = again
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(next.Sub(now), 0))
		}
	}
}

// judge determines how the chain treats the received verdicts. It reports whether more are left.
func (v *Verdicts) judge(chain Chain) (more bool) {
	v.mu.Lock()
	count := min(len(v.inbox), judgeTurn)
	verdicts := slices.Clone(v.inbox[:count])
	if v.inbox = v.inbox[count:]; len(v.inbox) == 0 {
		v.inbox = nil
	}
	more = len(v.inbox) > 0
	v.mu.Unlock()
	ready := false
	for i := range verdicts {
		if v.isClosed() {
			return false
		}
		ready = v.judgeOne(chain, &verdicts[i]) || ready
	}
	if ready {
		if v.config.Vouched {
			v.reminded = time.Now()
		}
		v.config.Ready()
	}
	return more
}

// judgeOne judges one verdict and reports whether there is something to propose now. It places a
// verdict only if no block was executed since it asked the chain. Otherwise the verdict could stay
// early for ever, because its transaction arrived in between. If blocks come too fast, it places
// the verdict after judgeTries anyway, and a later look corrects a wrong place.
func (v *Verdicts) judgeOne(chain Chain, verdict *ledger.Verdict) (ready bool) {
	key := keyOf(verdict)
	for try := 1; ; try++ {
		v.mu.Lock()
		known, applied := v.settled.has(key) || v.awaited.has(key) || v.early.has(key), v.applied
		v.mu.Unlock()
		if known {
			return false
		}
		standing, err := chain.Standing(verdict)
		v.mu.Lock()
		switch {
		case err != nil:
			v.status.Dropped++
		case v.applied != applied && try < judgeTries:
			v.mu.Unlock()
			continue
		case standing == store.Over && v.applied != applied:
			// The chain may have been replaced, and a verdict that is over is never judged again.
		case standing == store.Over:
			v.settled.add(key)
		case standing == store.Early:
			if !v.config.faults.forgetEarly {
				v.early.add(*verdict)
			}
		case v.awaited.len() >= awaitedMax && !v.awaited.displace(verdict):
			v.status.Dropped++
		default:
			v.awaited.add(*verdict)
			ready = true
		}
		if v.applied != applied {
			v.fresh = true // it may be in the wrong place
		}
		v.mu.Unlock()
		if err != nil {
			v.config.Logger.Debug("verdict not judged", "transaction", verdict.ID, "error", err)
		}
		return ready
	}
}

// answer answers some queries of members of other shards. It reports whether more are left.
func (v *Verdicts) answer(chain Chain) (more bool) {
	v.mu.Lock()
	count := min(len(v.queries), answerTurn)
	queries := slices.Clone(v.queries[:count])
	v.queries = slices.Delete(v.queries, 0, count)
	for i := range queries {
		if v.asking[queries[i].from]--; v.asking[queries[i].from] == 0 {
			delete(v.asking, queries[i].from)
		}
	}
	more = len(v.queries) > 0
	v.mu.Unlock()
	for i := range queries {
		var verdicts []ledger.Verdict
		durable := v.durableHeight(chain)
		for _, id := range queries[i].ids {
			if v.isClosed() {
				return false
			}
			verdict, made, err := chain.Verdict(id, durable)
			if err != nil {
				v.config.Logger.Debug("verdict not found", "transaction", id, "error", err)
			}
			if made && err == nil {
				verdicts = append(verdicts, verdict)
			}
		}
		if len(verdicts) > 0 && v.send(queries[i].from, wire.KindVerdicts,
			encodeVerdicts(verdicts)) {
			v.count(&v.status.Answered, len(verdicts))
		}
	}
	return more
}

// durableHeight returns the height up to which other shards may be told this chain's verdicts. They
// act on them for ever.
func (v *Verdicts) durableHeight(chain Chain) ledger.Height {
	height := v.config.Durable()
	v.mu.Lock()
	height = max(height, v.durable)
	v.mu.Unlock()
	appended := chain.AppendedHeight()
	if v.config.faults.notDurable {
		return appended
	}
	return min(height, appended)
}

// tell sends the verdicts of blocks that became durable to the other shards that they concern. It
// reports whether more are left. In a vouched book each member tells each member of the other
// shard. In other books each shard tells through f+1 of its n members, of which f = ⌊(n-1)/2⌋ may
// fail, to f+1 members of the other shard; the choice of members rotates with the transaction.
// Verdicts that get lost all the same are asked for.
func (v *Verdicts) tell(chain Chain) (more bool) {
	durable := v.durableHeight(chain)
	if !v.telling {
		// The verdicts of blocks executed before this start were told, and are asked for where they
		// are missing. The last blocks are an exception: they may not have been durable.
		appended := chain.AppendedHeight()
		v.telling, v.told = true, max(durable, appended-min(appended, pushAgain))
	}
	if durable > pushBehind {
		v.told = max(v.told, durable-pushBehind)
	}
	_, own := v.config.Directory.Members(v.config.Directory.Own())
	self := slices.IndexFunc(own, func(m Member) bool {
		return m.Peer == v.config.Directory.Self()
	})
	messages := map[rdmanet.PeerID][]ledger.Verdict{}
	for turn := 0; v.told < durable && turn < tellTurn; turn++ {
		if v.isClosed() {
			return false
		}
		if self >= 0 {
			if err := v.tellBlock(chain, v.told+1, own, self, messages); errors.Is(err,
				store.ErrClosed) {
				return false // Reset will follow with another store
			} else if err != nil {
				v.config.Logger.Debug("verdicts of a block not told", "height", v.told+1, "error",
					err)
			}
		}
		v.told++
	}
	for peer, verdicts := range messages {
		v.sendVerdicts(peer, verdicts)
	}
	return v.told < durable
}

// tellBlock adds the verdicts of a block to the messages, by receiver, and sends full messages.
func (v *Verdicts) tellBlock(chain Chain, height ledger.Height, own []Member, self int,
	messages map[rdmanet.PeerID][]ledger.Verdict) error {
	block, err := chain.Block(height)
	if err != nil {
		return err
	}
	shard := v.config.Directory.Own()
	for index, entry := range block.All() {
		verdict, made := ledger.VerdictOf(entry, shard)
		if !made || !v.acts(self, len(own), binary.LittleEndian.Uint32(entry.ID[0:])) {
			continue
		}
		for _, destination := range chain.Destinations(block, index) {
			if destination == shard {
				continue
			}
			_, members := v.config.Directory.Members(destination)
			for at, member := range members {
				if !v.acts(at, len(members), binary.LittleEndian.Uint32(entry.ID[4:])) {
					continue
				}
				messages[member.Peer] = append(messages[member.Peer], verdict)
				if len(messages[member.Peer]) == verdictsMax {
					v.sendVerdicts(member.Peer, messages[member.Peer])
					delete(messages, member.Peer)
				}
			}
		}
	}
	return nil
}

// acts reports whether the member at this index among count members is one of those that act on a
// transaction: f+1, or in a vouched book all.
func (v *Verdicts) acts(at, count int, turn uint32) bool {
	if v.config.Vouched {
		return true
	}
	first := int(turn % uint32(count))
	return (at-first+count)%count <= (count-1)/2
}

func (v *Verdicts) sendVerdicts(to rdmanet.PeerID, verdicts []ledger.Verdict) {
	if v.send(to, wire.KindVerdicts, encodeVerdicts(verdicts)) {
		v.count(&v.status.Told, len(verdicts))
	}
}

func (v *Verdicts) send(to rdmanet.PeerID, kind wire.Kind, payload []byte) bool {
	err := v.config.Control.Send(to, kind, payload)
	if err != nil {
		v.config.Logger.Debug("not sent", "peer", to, "kind", kind, "error", err)
	}
	return err == nil
}

func (v *Verdicts) count(counter *uint64, by int) {
	v.mu.Lock()
	*counter += uint64(by)
	v.mu.Unlock()
}

// ask looks, when it is time, at the transactions that wait for other shards, and asks those shards
// for verdicts that did not arrive unasked.
func (v *Verdicts) ask(chain Chain, now time.Time) {
	v.mu.Lock()
	anew := v.reset
	switch {
	case anew:
		clear(v.waiting)
		v.look = now
	case v.fresh && v.look.IsZero():
		v.look = now.Add(v.config.AskAfter / 2)
	}
	v.reset, v.fresh = false, false
	v.mu.Unlock()
	if v.look.IsZero() || now.Before(v.look) {
		return
	}
	v.look = time.Time{}
	var pending []state.Pending
	if chain.PendingCount() > 0 {
		pending = chain.Pending()
	}
	due := v.overdue(pending, now, anew)
	v.sweep()
	v.question(due, now)
	if len(pending) > 0 {
		// A look costs time in proportion to the waiting transactions, and blocks the chain for a
		// part of it.
		end := time.Now()
		v.look = end.Add(max(v.config.AskAfter/2, lookShare*end.Sub(now)))
	}
}

// overdue tracks how long transactions have been waiting, and returns those to ask for, the least
// recently asked first. After a store was opened, all of its waiting transactions are overdue.
func (v *Verdicts) overdue(pending []state.Pending, now time.Time, anew bool) []*state.Pending {
	for _, w := range v.waiting {
		w.seen = false
	}
	var due []*state.Pending
	for i := range pending {
		w := v.waiting[pending[i].ID]
		if w == nil {
			w = &waiting{since: now}
			if anew {
				w.since = time.Time{}
			}
			v.waiting[pending[i].ID] = w
		}
		w.seen = true
		if now.Sub(w.since) >= v.config.AskAfter && now.Sub(w.asked) >= v.config.AskEvery {
			due = append(due, &pending[i])
		}
	}
	for id, w := range v.waiting {
		if !w.seen {
			delete(v.waiting, id)
		}
	}
	slices.SortStableFunc(due, func(a, b *state.Pending) int {
		return v.waiting[a.ID].asked.Compare(v.waiting[b.ID].asked)
	})
	return due
}

// sweep queues misplaced verdicts to be judged again: awaited ones whose transactions do not wait,
// and early ones whose transactions do.
func (v *Verdicts) sweep() {
	v.mu.Lock()
	before := len(v.inbox)
	var misplaced []ledger.Hash
	v.awaited.transactions(func(id ledger.Hash) {
		if v.waiting[id] == nil {
			misplaced = append(misplaced, id)
		}
	})
	for _, id := range misplaced {
		v.inbox = append(v.inbox, v.awaited.of(id)...)
		v.awaited.removeAll(id)
	}
	if v.early.len() > 0 {
		for id := range v.waiting {
			v.inbox = append(v.inbox, v.early.take(id)...)
		}
	}
	more := len(v.inbox) > before
	v.mu.Unlock()
	if more {
		v.nudge()
	}
}

// question asks the shards that transactions wait for: each time another member, or in a vouched
// book all members. Verdicts that are believed, but were dropped for lack of room, are judged again
// instead.
func (v *Verdicts) question(due []*state.Pending, now time.Time) {
	messages := askMessages
	if v.config.Vouched {
		messages = queriesPerPeer // each member gets all of them
	}
	ids := map[ledger.ShardID][]ledger.Hash{}
	v.mu.Lock()
	before := len(v.inbox)
	for _, each := range due {
		waits, asked := v.waiting[each.ID], false
		for _, shard := range each.Waits {
			key := verdictKey{each.ID, shard}
			if len(ids[shard]) >= messages*queryMax || v.awaited.has(key) {
				continue
			}
			// The verdict was judged while the transaction's block was executed, and is not over.
			v.settled.remove(key)
			waits.asked = now
			if result, believed := v.believed.get(key); believed {
				v.enqueue(ledger.Verdict{ID: each.ID, Shard: shard, Result: result})
				continue
			}
			ids[shard] = append(ids[shard], each.ID)
			asked = true
			if waits.asks >= proofAfter {
				v.wantProof(key)
			}
		}
		if asked {
			waits.asks++
		}
	}
	more := len(v.inbox) > before
	v.mu.Unlock()
	if more {
		v.nudge()
	}
	for shard, all := range ids {
		candidates := v.config.Directory.Candidates(shard)
		if len(candidates) == 0 {
			continue
		}
		for chunk := range slices.Chunk(all, queryMax) {
			v.query(shard, candidates, encodeQuery(chunk), len(chunk))
		}
	}
}

// query sends a query for a number of verdicts to the next of a shard's candidates, or in a vouched
// book to all.
func (v *Verdicts) query(shard ledger.ShardID, candidates []rdmanet.PeerID, payload []byte,
	count int) {
	if !v.config.Vouched {
		at := v.turns[shard] % len(candidates)
		candidates = candidates[at : at+1]
		if !v.config.faults.sameCandidate {
			v.turns[shard]++
		}
	}
	sent := false
	for _, peer := range candidates {
		sent = v.send(peer, wire.KindVerdictQuery, payload) || sent
	}
	if sent {
		v.count(&v.status.Asked, count)
	}
}
