package shards

import (
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// How much of each task the goroutine does before it turns to the next.
const (
	judgeTurn, judgeGroupsTurn, answerTurn, tellTurn = 1024, 64, 4, 32
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
		if v.config.Vouched && !v.grouped.Load() { // the version of a chain does not go down
			v.grouped.Store(v.config.Groups())
		}
		more := v.judge(chain)
		more = v.judgeGroups(chain) || more
		more = v.answer(chain) || more
		more = v.tell(chain) || more
		v.ask(chain, time.Now())
		if more {
			v.nudge()
		}
		now := time.Now()
		v.mu.Lock()
		after, waits := v.exchange.Again(v.config.AgainAfter)
		v.mu.Unlock()
		var again time.Time
		if waits {
			again = v.began.Add(after)
			if earliest := v.reminded.Add(v.config.AgainAfter); again.Before(earliest) {
				again = earliest // no batch takes verdicts at present
			}
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
	received := v.exchange.TakeReceived(judgeTurn)
	more = v.exchange.Counts().Received > 0
	v.mu.Unlock()
	ready := false
	for i := range received {
		if v.isClosed() {
			return false
		}
		ready = v.judgeOne(chain, &received[i]) || ready
	}
	v.judged(ready)
	return more
}

// judged calls Ready if there is something to propose now.
func (v *Verdicts) judged(ready bool) {
	if !ready {
		return
	}
	if v.config.Vouched {
		v.reminded = time.Now()
	}
	v.config.Ready()
}

// judgeGroups is judge for groups.
func (v *Verdicts) judgeGroups(chain Chain) (more bool) {
	ready := false
	for turn := 0; ; turn++ {
		v.mu.Lock()
		if more = v.exchange.GroupsToJudge(); !more || turn == judgeGroupsTurn {
			v.mu.Unlock()
			break
		}
		group, _ := v.exchange.TakeGroup()
		v.mu.Unlock()
		if v.isClosed() {
			return false
		}
		ready = v.judgeGroup(chain, &group) || ready
	}
	v.judged(ready)
	return more
}

// judgeGroup is judgeOne for a group.
func (v *Verdicts) judgeGroup(chain Chain, group *verdicts.JudgedGroup) (ready bool) {
	for try := 1; ; try++ {
		v.mu.Lock()
		blocks := v.exchange.Blocks()
		v.mu.Unlock()
		err := group.Judge(chain.Standing)
		v.mu.Lock()
		switch {
		case err != nil:
			v.exchange.DropGroup(group)
			v.status.Dropped += uint64(len(group.IDs))
			v.mu.Unlock()
			v.config.Logger.Debug("group of verdicts not judged", "shard", group.Shard, "error",
				err)
			return false
		case v.exchange.Blocks() == blocks || try == judgeTries:
			ready = v.exchange.PlaceGroup(group, blocks)
			v.mu.Unlock()
			return ready
		}
		v.mu.Unlock()
	}
}

// judgeOne judges one verdict and reports whether there is something to propose now. It places a
// verdict only if no block was executed since it asked the chain. Otherwise the verdict could stay
// early for ever, because its transaction arrived in between. If blocks come too fast, it places
// the verdict after judgeTries anyway, and a later look corrects a wrong place.
func (v *Verdicts) judgeOne(chain Chain, verdict *ledger.Verdict) (ready bool) {
	for try := 1; ; try++ {
		v.mu.Lock()
		known, blocks := v.exchange.Knows(verdicts.KeyOf(verdict)), v.exchange.Blocks()
		v.mu.Unlock()
		if known {
			return false
		}
		standing, err := chain.Standing(verdict)
		if err != nil {
			v.config.Logger.Debug("verdict not judged", "transaction", verdict.ID, "error", err)
			v.count(&v.status.Dropped, 1)
			return false
		}
		v.mu.Lock()
		if v.exchange.Blocks() == blocks || try == judgeTries {
			ready = v.exchange.Place(verdict, standing, blocks)
			v.mu.Unlock()
			return ready
		}
		v.mu.Unlock()
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
		var found []ledger.Verdict
		durable := v.durableHeight(chain)
		for _, id := range queries[i].ids {
			if v.isClosed() {
				return false
			}
			verdict, made, err := answerTo(chain, id, &queries[i], durable)
			if err != nil {
				v.config.Logger.Debug("verdict not found", "transaction", id, "error", err)
			}
			if made && err == nil {
				found = append(found, verdict)
			}
		}
		if len(found) > 0 && v.send(queries[i].from, wire.KindVerdicts,
			encodeVerdicts(found)) {
			v.count(&v.status.Answered, len(found))
		}
	}
	return more
}

// answerTo returns this shard's verdict on a transaction, or its testimony with this subject.
func answerTo(chain Chain, id ledger.Hash, q *query, durable ledger.Height) (
	verdict ledger.Verdict, made bool, err error) {
	if testimony, is := q.subject.Testimony(); is {
		return chain.Testimony(id, testimony, durable)
	}
	return chain.Verdict(id, q.shard, durable)
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
// reports whether more are left. verdicts.Tells and verdicts.Told say which member tells which one.
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
			err := v.tellBlock(chain, v.told+1, own, self, messages)
			if errors.Is(err, store.ErrClosed) {
				return false // Reset will follow with another store
			} else if err != nil {
				v.config.Logger.Debug("verdicts of a block not told", "height", v.told+1, "error",
					err)
			}
		}
		v.told++
	}
	for peer, told := range messages {
		v.sendVerdicts(peer, told)
	}
	return v.told < durable
}

// tellBlock tells the groups of verdicts in a block, if this chain takes groups, adds the other
// verdicts to the messages, by receiver, and sends full messages.
func (v *Verdicts) tellBlock(chain Chain, height ledger.Height, own []Member, self int,
	messages map[rdmanet.PeerID][]ledger.Verdict) error {
	told, err := chain.OwnVerdicts(height)
	if err != nil {
		return err
	}
	if v.grouped.Load() && v.config.Vouched {
		v.tellParts(verdicts.Split(told), messages)
		return nil
	}
	for i := range told {
		verdict := &told[i].Verdict
		if !verdicts.Tells(verdict.ID, self, len(own), v.config.Vouched) {
			continue
		}
		for _, destination := range told[i].To {
			_, members := v.config.Directory.Members(destination)
			for at, member := range members {
				if verdicts.Told(verdict.ID, at, len(members), v.config.Vouched) {
					v.addVerdict(messages, member.Peer, verdict)
				}
			}
		}
	}
	return nil
}

// tellParts tells all members of each shard what a block has for it.
func (v *Verdicts) tellParts(parts []verdicts.Part, messages map[rdmanet.PeerID][]ledger.Verdict) {
	for i := range parts {
		_, members := v.config.Directory.Members(parts[i].To)
		for j := range parts[i].Groups {
			group := &parts[i].Groups[j]
			message := encodeGroup(group)
			for _, member := range members {
				if v.send(member.Peer, wire.KindVerdicts, message) {
					v.count(&v.status.Told, len(group.IDs))
				}
			}
		}
		for j := range parts[i].Singles {
			for _, member := range members {
				v.addVerdict(messages, member.Peer, &parts[i].Singles[j])
			}
		}
	}
}

// addVerdict adds a verdict to the message for a member, and sends the message if it is full.
func (v *Verdicts) addVerdict(messages map[rdmanet.PeerID][]ledger.Verdict, to rdmanet.PeerID,
	verdict *ledger.Verdict) {
	messages[to] = append(messages[to], *verdict)
	if len(messages[to]) == verdictsMax {
		v.sendVerdicts(to, messages[to])
		delete(messages, to)
	}
}

func (v *Verdicts) sendVerdicts(to rdmanet.PeerID, told []ledger.Verdict) {
	if v.send(to, wire.KindVerdicts, encodeVerdicts(told)) {
		v.count(&v.status.Told, len(told))
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
	anew, fresh := v.reset, v.exchange.TakeFresh()
	v.reset = false
	v.mu.Unlock()
	switch {
	case anew:
		v.look = now
	case fresh && v.look.IsZero():
		v.look = now.Add(v.config.AskAfter / 2)
	}
	if v.look.IsZero() || now.Before(v.look) {
		return
	}
	v.look = time.Time{}
	var pending []state.Pending
	if chain.AwaitingCount() > 0 {
		pending = chain.Awaiting()
	}
	v.question(v.waits.Overdue(pending, now.Sub(v.began), anew), now)
	if len(pending) > 0 {
		// A look costs time in proportion to the waiting transactions, and blocks the chain for a
		// part of it.
		end := time.Now()
		v.look = end.Add(max(v.config.AskAfter/2, lookShare*end.Sub(now)))
	}
}

// question asks the shards that transactions wait for: each time another member, or in a vouched
// book all members. It also has misplaced verdicts judged again.
func (v *Verdicts) question(due []*state.Pending, now time.Time) {
	messages := askMessages
	if v.config.Vouched {
		messages = queriesPerPeer // each member gets all of them
	}
	v.mu.Lock()
	before := v.exchange.Counts().Received
	v.exchange.Sweep(v.waits)
	questions, vain := v.exchange.Questions(v.waits, due, now.Sub(v.began),
		messages*queryMax, proofAfter)
	for _, key := range vain {
		v.wantProof(key)
	}
	more := v.exchange.Counts().Received > before
	v.mu.Unlock()
	if more {
		v.nudge()
	}
	for _, each := range questions {
		candidates := v.config.Directory.Candidates(each.Shard)
		if len(candidates) == 0 {
			continue
		}
		for chunk := range slices.Chunk(each.IDs, queryMax) {
			v.query(each.Shard, candidates, encodeQuery(chunk, each.Subject),
				len(chunk))
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
