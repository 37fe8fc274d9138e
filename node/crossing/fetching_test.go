package crossing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// asked is a question for arrivals.
type asked struct {
	member rdmanet.PeerID
	move   uint64
	from   ledger.Hash
}

// comingScene is a chain to which organisations move, and the members of their old homes.
type comingScene struct {
	*fetcher
	t     *testing.T
	comes chan struct{}

	mutex    sync.Mutex
	coming   []comingMove
	arrivals map[uint64][]*ledger.Bundle
	taken    map[uint64]int // arrivals in the chain
	asked    []asked
	admitted []ledger.Hash
	full     bool // the mempool is
	// answers has what a member does instead of answering with the next two arrivals.
	answers map[rdmanet.PeerID]func(context.Context) ([]byte, error)
	changed chan struct{} // after an answer or an admission
}

func newComingScene(t *testing.T, from ...ledger.ShardID) *comingScene {
	t.Helper()
	s := &comingScene{t: t, comes: make(chan struct{}, 1), arrivals: map[uint64][]*ledger.Bundle{},
		taken: map[uint64]int{}, changed: make(chan struct{}, 1),
		answers: map[rdmanet.PeerID]func(context.Context) ([]byte, error){}}
	for i, home := range from {
		number := uint64(i + 1)
		s.coming = append(s.coming, comingMove{number: number, from: home})
		var entries []ledger.MovedEntry
		for j := range 6 {
			entries = append(entries, ledger.MovedEntry{Key: fmt.Appendf(nil, "key-%d", j),
				Value: []byte("value")})
		}
		arrivals, _, err := ledger.PackArrivals(ledger.Hash{}, number, entries, 1)
		if err != nil || len(arrivals) != len(entries) {
			t.Fatal(len(arrivals), err)
		}
		s.arrivals[number] = arrivals
	}
	s.fetcher = &fetcher{coming: s.next, ask: s.answer, admit: s.admit, now: time.Now,
		logger: slog.New(slog.DiscardHandler),
		members: func(home ledger.ShardID) (all []rdmanet.PeerID) {
			for i := range 3 {
				all = append(all, rdmanet.PeerID(fmt.Sprintf("%d-%d", home, i)))
			}
			return all
		}}
	return s
}

// start runs the fetcher until the test ends.
func (s *comingScene) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() {
		s.run(ctx, s.comes)
		close(ended)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (s *comingScene) next() (coming []comingMove) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, each := range s.coming {
		if left := s.arrivals[each.number][s.taken[each.number]:]; len(left) > 0 {
			each.next = left[0].ID(0)
			coming = append(coming, each)
		}
	}
	return coming
}

func (s *comingScene) answer(ctx context.Context, _ ledger.ShardID, member rdmanet.PeerID,
	move uint64, from ledger.Hash) (body []byte, err error) {
	defer s.change()
	s.mutex.Lock()
	s.asked = append(s.asked, asked{member, move, from})
	other, arrivals := s.answers[member], s.arrivals[move]
	s.mutex.Unlock()
	if other != nil {
		return other(ctx)
	}
	at := slices.IndexFunc(arrivals, func(b *ledger.Bundle) bool { return b.ID(0) == from })
	for _, each := range arrivals[at:min(at+2, len(arrivals))] {
		body = append(binary.AppendUvarint(body, uint64(len(each.Encode()))), each.Encode()...)
	}
	return body, nil
}

func (s *comingScene) admit(arrival *ledger.Bundle) error {
	defer s.change()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.full {
		return errors.New("full")
	}
	s.admitted = append(s.admitted, arrival.ID(0))
	return nil
}

func (s *comingScene) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// eventually waits until a condition holds, which may read the scene.
func (s *comingScene) eventually(what string, holds func() bool) {
	s.t.Helper()
	timeout := time.After(time.Minute)
	for {
		s.mutex.Lock()
		held := holds()
		s.mutex.Unlock()
		if held {
			return
		}
		select {
		case <-s.changed:
		case <-timeout:
			s.t.Fatalf("not in time: %s", what)
		}
	}
}

// take takes arrivals of a move into the chain.
func (s *comingScene) take(move uint64, count int) {
	s.mutex.Lock()
	s.taken[move] += count
	s.mutex.Unlock()
	s.comes <- struct{}{}
}

// Members are asked in turn. What was admitted is not fetched again, unless the mempool lost it.
func TestArrivalsAreFetchedInTurn(t *testing.T) {
	t.Parallel()
	s := newComingScene(t, 1)
	s.answers["1-0"] = func(context.Context) ([]byte, error) { return nil, errors.New("500") }
	s.answers["1-1"] = func(context.Context) ([]byte, error) { return nil, nil }
	s.start()
	ids := func(from, to int) (ids []ledger.Hash) {
		for _, each := range s.arrivals[1][from:to] {
			ids = append(ids, each.ID(0))
		}
		return ids
	}
	s.eventually("two are admitted", func() bool { return slices.Equal(s.admitted, ids(0, 2)) })
	for range 3 {
		s.comes <- struct{}{} // nothing is new
	}
	s.take(1, 1) // the other one is still on its way
	s.comes <- struct{}{}
	s.take(1, 1)
	s.eventually("four are admitted", func() bool { return slices.Equal(s.admitted, ids(0, 4)) })
	s.fetcher.admitted.forget(1)
	s.comes <- struct{}{}
	s.eventually("those are fetched again", func() bool {
		return slices.Equal(s.admitted[4:], ids(2, 4))
	})
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var members []rdmanet.PeerID
	for _, each := range s.asked {
		members = append(members, each.member)
	}
	want := []rdmanet.PeerID{"1-0", "1-1", "1-2", "1-2", "1-2"} // the others did not answer well
	if !slices.Equal(members, want) {
		t.Errorf("asked %v, want %v", members, want)
	}
	for i, want := range []rdmanet.PeerID{"1-2", "1-2", "1-2", "1-2"} {
		if got := s.inTurn(1, i); len(got) != 3 || got[0] != want {
			t.Errorf("%v in turn %d", got, i)
		}
	}
	s.doubted = nil
	for i, want := range []rdmanet.PeerID{"1-0", "1-1", "1-2", "1-0"} {
		if got := s.inTurn(1, i); len(got) != 3 || got[0] != want {
			t.Errorf("%v in turn %d", got, i)
		}
	}
}

// What the mempool has no room for is fetched again soon.
func TestArrivalsWaitForRoom(t *testing.T) {
	t.Parallel()
	s := newComingScene(t, 1)
	s.full = true
	s.start()
	s.eventually("it is tried again", func() bool { return len(s.asked) > 3 })
	s.mutex.Lock()
	s.full = false
	s.mutex.Unlock()
	s.eventually("two are admitted", func() bool { return len(s.admitted) == 2 })
}

// Old homes that are silent, with many moves, hold up no others.
func TestSilentHomeHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	homes := append(slices.Repeat([]ledger.ShardID{1}, 2*fetchesMax), 2)
	s := newComingScene(t, homes...)
	silent, most := 0, 0
	for i := range 3 {
		s.answers[rdmanet.PeerID(fmt.Sprintf("1-%d", i))] = func(ctx context.Context) ([]byte,
			error) {
			s.mutex.Lock()
			silent++
			most = max(most, silent)
			s.mutex.Unlock()
			<-ctx.Done()
			s.mutex.Lock()
			silent--
			s.mutex.Unlock()
			return nil, ctx.Err()
		}
	}
	s.start()
	last := uint64(len(homes))
	for i := range 3 {
		s.eventually("two more are admitted", func() bool { return len(s.admitted) == 2*i+2 })
		s.take(last, 2)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if most > fetchesPerHome {
		t.Errorf("%d fetches from one home", most)
	}
}

// A peer that is no member of any shard gets nothing.
func TestStrangersGetNoArrivals(t *testing.T) {
	t.Parallel()
	b, err := newBook(Config{Dir: t.TempDir(), Genesis: vouchedGenesis(t, 0), Self: "self",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, arrivalsPath+"?move=1&from="+ledger.Hash{1}.String(),
		nil)
	r.RemoteAddr = "stranger"
	if b.serveArrivals(w, r); w.Code != http.StatusForbidden {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// Which organisations moved lately is known without their blocks, and is forgotten after that.
func TestYoungMoves(t *testing.T) {
	t.Parallel()
	grace := ledger.Milliseconds(moveGrace.Milliseconds())
	var y youngMoves
	y.note("acme", 5000)
	y.note("other", 5000+grace/2)
	for now, want := range map[ledger.Milliseconds][2]bool{4999: {}, 5000: {true, false},
		5000 + grace/2: {true, true}, 5000 + grace: {false, true}, 5000 + 2*grace: {}} {
		if got := [2]bool{y.has("acme", now), y.has("other", now)}; got != want {
			t.Errorf("at %d: %v, want %v", now, got, want)
		}
	}
	if y.note("third", 5000+grace); len(y.at) != 2 || y.has("never", 5000) {
		t.Errorf("%v are kept", y.at)
	}
}
