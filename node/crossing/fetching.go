package crossing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	// fetchesMax bounds the moves whose arrivals are being fetched at a time, and fetchesPerHome
	// those from one old home, which may be slow.
	fetchesMax, fetchesPerHome = 16, 2
	// arrivalTimeout bounds a fetch, and memberPatience the wait for one member's answer. A member
	// that makes the arrivals first goes on after that, and has them when it is asked again.
	arrivalTimeout, memberPatience = 10 * time.Second, 3 * time.Second
	// arrivalPause is the time until the next fetch of a move after one that failed, and
	// arrivalPauseMax the longest one while the old home does not answer.
	arrivalPause    = 20 * time.Millisecond
	arrivalPauseMax = time.Second
	// admittedLasts is how long arrivals that were admitted are not fetched again if the chain does
	// not take them.
	admittedLasts = 5 * time.Second
	// doubtedFor is for how long a member that did not answer well is asked after the others.
	doubtedFor = 30 * time.Second
)

var (
	errArrivals = errors.New("an answer with other arrivals than the next ones")
	errNoRoom   = errors.New("the next arrival was not admitted")
)

// fetcher fetches what comes next of organisations that move here, of several moves at a time. Each
// time it asks another member of the old home first, so that one that is slow or has nothing does
// not matter for long.
type fetcher struct {
	// coming returns the moves that the chain waits for.
	coming  func() []comingMove
	members func(ledger.ShardID) []rdmanet.PeerID
	// ask asks a member for the arrivals of a move from one on.
	ask func(ctx context.Context, home ledger.ShardID, member rdmanet.PeerID, move uint64,
		from ledger.Hash) (answer []byte, err error)
	// admit puts an arrival into the mempool.
	admit  func(*ledger.Bundle) error
	now    func() time.Time
	logger *slog.Logger

	admitted admitted

	doubting sync.Mutex
	doubted  map[rdmanet.PeerID]time.Time // until when, by member

	// Only the goroutine of run uses the following.
	moves      map[uint64]*fetching
	running    int
	homes      map[ledger.ShardID]int // the running fetches by old home
	done       chan fetched
	complained time.Time
}

// comingMove is a move that the chain waits for.
type comingMove struct {
	number       uint64
	organisation ledger.OrganisationName
	from         ledger.ShardID
	next         ledger.Hash // the next arrival, or zero before the departure is known
}

// fetching is the fetching of one move.
type fetching struct {
	running bool
	// turn counts the fetches, and began is when the last one did.
	turn  int
	began time.Time
	// pause is the one after the next failure, and after when the last one ends.
	pause time.Duration
	after time.Time
}

// fetched is the end of a fetch.
type fetched struct {
	move comingMove
	err  error
}

// run fetches until ctx is done. Comes gets a value when the chain may wait for something else.
func (f *fetcher) run(ctx context.Context, comes <-chan struct{}) {
	f.moves, f.homes = make(map[uint64]*fetching), make(map[ledger.ShardID]int)
	f.done = make(chan fetched, fetchesMax)
	defer func() {
		for ; f.running > 0; f.running-- {
			<-f.done
		}
	}()
	again := time.NewTimer(0) // the chain may wait from before
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-comes:
		case <-again.C:
		case ended := <-f.done:
			f.ended(ctx, &ended)
		}
		if pause, more := f.begin(ctx); more {
			again.Reset(pause)
		}
	}
}

// begin begins the fetches that are due, first those of which the last one was longest ago. It
// returns when to look again, unless nothing comes.
func (f *fetcher) begin(ctx context.Context) (pause time.Duration, more bool) {
	coming := f.coming()
	now, due, pause := f.now(), make([]int, 0, len(coming)), arrivalPauseMax
	expected := make(map[uint64]struct{}, len(coming))
	for i := range coming {
		number := coming[i].number
		expected[number] = struct{}{}
		if f.moves[number] == nil {
			f.moves[number] = &fetching{pause: arrivalPause}
		}
		each := f.moves[number]
		if each.running || coming[i].next == (ledger.Hash{}) {
			continue
		}
		wait := max(each.after.Sub(now), f.admitted.until(number, coming[i].next).Sub(now))
		if wait <= 0 {
			due = append(due, i)
		} else {
			pause = min(pause, wait)
		}
	}
	slices.SortStableFunc(due, func(i, j int) int {
		return f.moves[coming[i].number].began.Compare(f.moves[coming[j].number].began)
	})
	for _, i := range due {
		move := coming[i]
		if f.running == fetchesMax || f.homes[move.from] == fetchesPerHome {
			continue // the end of another one begins it
		}
		each := f.moves[move.number]
		turn := each.turn
		each.running, each.began, each.turn = true, now, turn+1
		f.running++
		f.homes[move.from]++
		go func() { f.done <- fetched{move, f.fetch(ctx, &move, turn)} }()
	}
	for number, each := range f.moves {
		if _, is := expected[number]; !is && !each.running {
			delete(f.moves, number)
			f.admitted.forget(number)
		}
	}
	return pause, len(coming) > 0
}

// ended notes the end of a fetch.
func (f *fetcher) ended(ctx context.Context, end *fetched) {
	f.running--
	if f.homes[end.move.from]--; f.homes[end.move.from] == 0 {
		delete(f.homes, end.move.from)
	}
	each, now := f.moves[end.move.number], f.now()
	each.running = false
	if end.err == nil {
		each.pause = arrivalPause
		return
	}
	each.after, each.pause = now.Add(each.pause), min(2*each.pause, arrivalPauseMax)
	if ctx.Err() == nil && now.Sub(f.complained) >= complainEvery {
		f.complained = now
		f.logger.Warn("what an organisation takes along could not be fetched yet",
			"organisation", end.move.organisation, "from", end.move.from, "error", end.err)
	}
}

// fetch fetches the next arrivals of a move from a member of the old home, and admits them. The
// error is that of the last member asked.
func (f *fetcher) fetch(ctx context.Context, move *comingMove, turn int) error {
	ctx, cancel := context.WithTimeout(ctx, arrivalTimeout)
	defer cancel()
	err := fmt.Errorf("shard %d: no member to ask", move.from)
	for i, member := range f.inTurn(move.from, turn) {
		if i > 0 && ctx.Err() != nil {
			return err
		}
		if err = f.fetchFrom(ctx, move, member); err == nil || errors.Is(err, errNoRoom) {
			return err
		}
		f.doubt(member)
		f.logger.Debug("no arrivals", "move", move.number, "peer", member, "error", err)
	}
	return err
}

// inTurn returns the members of an old home, first another one with each turn, and last those that
// did not answer well lately.
func (f *fetcher) inTurn(home ledger.ShardID, turn int) (members []rdmanet.PeerID) {
	all := f.members(home)
	var last []rdmanet.PeerID
	f.doubting.Lock()
	defer f.doubting.Unlock()
	now := f.now()
	for i := range all {
		if member := all[(turn+i)%len(all)]; now.Before(f.doubted[member]) {
			last = append(last, member)
		} else {
			members = append(members, member)
		}
	}
	return append(members, last...)
}

// doubt notes that a member did not answer well.
func (f *fetcher) doubt(member rdmanet.PeerID) {
	f.doubting.Lock()
	defer f.doubting.Unlock()
	if f.doubted == nil {
		f.doubted = make(map[rdmanet.PeerID]time.Time)
	}
	now := f.now()
	maps.DeleteFunc(f.doubted, func(_ rdmanet.PeerID, until time.Time) bool {
		return !now.Before(until)
	})
	f.doubted[member] = now.Add(doubtedFor)
}

// fetchFrom fetches the next arrivals of a move from one member, and admits them.
func (f *fetcher) fetchFrom(ctx context.Context, move *comingMove, member rdmanet.PeerID) error {
	next := move.next
	ctx, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	body, err := f.ask(ctx, move.from, member, move.number, next)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return errArrivals
	}
	var ids []ledger.Hash
	defer func() { f.admitted.note(move.number, ids, f.now().Add(admittedLasts)) }()
	for len(body) > 0 {
		size, length := binary.Uvarint(body)
		if length <= 0 || size > uint64(len(body)-length) {
			return errArrivals
		}
		bundle, err := ledger.DecodeBundle(body[length : length+int(size)])
		if err != nil {
			return fmt.Errorf("%w: %w", errArrivals, err)
		}
		arrival := bundle.Transaction(0).Arrival
		if arrival == nil || bundle.ID(0) != next {
			return errArrivals
		}
		if err := f.admit(bundle); err != nil {
			if len(ids) > 0 {
				return nil // the others are fetched again once the chain has these
			}
			return fmt.Errorf("%w: %w", errNoRoom, err)
		}
		ids = append(ids, next)
		next, body = arrival.Next, body[length+int(size):]
	}
	return nil
}

// admitted are the arrivals that were admitted last, of each move. They may not be in a block yet.
type admitted struct {
	mutex sync.Mutex
	by    map[uint64]admission
}

type admission struct {
	ids   []ledger.Hash
	until time.Time
}

// note notes that the next arrivals of a move were admitted, which others need not be fetched until
// some time.
func (a *admitted) note(move uint64, ids []ledger.Hash, until time.Time) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if len(ids) == 0 {
		return
	}
	if a.by == nil {
		a.by = make(map[uint64]admission)
	}
	a.by[move] = admission{ids, until}
}

// until returns until when an arrival need not be fetched, because it was admitted, or zero.
func (a *admitted) until(move uint64, id ledger.Hash) time.Time {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if slices.Contains(a.by[move].ids, id) {
		return a.by[move].until
	}
	return time.Time{}
}

// forget has the arrivals of a move fetched again: the mempool does not have all of them any more.
func (a *admitted) forget(move uint64) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.by, move)
}

// forgetAll is forget of all moves.
func (a *admitted) forgetAll() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	clear(a.by)
}
