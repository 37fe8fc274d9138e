package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// trailNode is a node of the test's book that exchanges trails.
type trailNode struct {
	directory *Directory
	host      *memory.Host
	control   *wire.Datagrams
	exchange  *TrailExchange
}

// trailNodeOf starts a node with the trail of its own shard. It asks in turn at this interval.
func trailNodeOf(t testing.TB, network *memory.Network, self int, every time.Duration,
	own []*ledger.Certificate) *trailNode {
	t.Helper()
	n := &trailNode{directory: vouchedDirectory(t, self)}
	timeout := 500 * time.Millisecond
	if every > patience { // nobody asks again after it, and some peers never answer
		timeout = patience / 6
	}
	n.host, n.control = controlOf(t, network, peerOf(t, self))
	var err error
	n.exchange, err = NewTrailExchange(TrailExchangeConfig{Directory: n.directory, Host: n.host,
		Logger: quiet, Every: every, Timeout: timeout, Bytes: 2000,
		Own: func(from ledger.MembersEpoch, _ int) ([]*ledger.Certificate, error) {
			return own[min(int(from), len(own)):], nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.exchange.Close)
	return n
}

// announcing makes a node announce, at short intervals.
func (n *trailNode) announcing(t testing.TB, epoch ledger.MembersEpoch) {
	t.Helper()
	announcer, err := NewAnnouncer(AnnouncerConfig{Directory: n.directory, Control: n.control,
		Logger: quiet, Every: 5 * time.Millisecond, Gap: time.Millisecond, Newer: n.exchange.Newer,
		Own: func() Announcement {
			return Announcement{Shard: n.directory.Own(), Mode: report.ModeOrdering, Epoch: epoch}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(announcer.Close)
	n.host.Watch(announcer.Event)
}

// knows waits until a node has a trail of this length.
func (n *trailNode) knows(t testing.TB, shard ledger.ShardID, epoch ledger.MembersEpoch) {
	t.Helper()
	eventually(t, fmt.Sprintf("epoch %d of shard %d", epoch, shard), func() bool {
		return n.directory.Epoch(shard) == epoch
	})
}

// Members of other shards hear of a change from a member of the shard, and their fellows from them.
// The interval is so long that nodes ask only because of an announcement.
func TestAnnouncedTrailsAreFetched(t *testing.T) {
	t.Parallel()
	network, h := memory.NewNetwork(), newHistory(t, 1).join(20).leave(0)
	changing := trailNodeOf(t, network, 4, time.Hour, h.trail)
	above := trailNodeOf(t, network, 0, time.Hour, nil)
	below := trailNodeOf(t, network, 6, time.Hour, nil)
	above.announcing(t, 0)
	below.announcing(t, 0)
	changing.announcing(t, 2)
	above.knows(t, 1, 2)
	below.knows(t, 1, 2)
	if _, _, known := above.directory.Find(peerOf(t, 3)); known {
		t.Error("a member that left is known")
	}
	network.Kill(peerOf(t, 4))
	fellow := trailNodeOf(t, network, 1, time.Hour, nil)
	fellow.announcing(t, 0)
	fellow.knows(t, 1, 2)
}

// A node that was away finds a shard again of which all members were replaced. Its fellows were
// away, too: a member of a third shard tells it.
func TestReplacedShardIsFoundAgain(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	h := newHistory(t, 1).join(20).leave(0).join(21).leave(1).leave(2)
	third := trailNodeOf(t, network, 7, time.Hour, nil)
	learn(t, third.directory, 1, h.trail)
	away := trailNodeOf(t, network, 0, 10*time.Millisecond, nil)
	away.knows(t, 1, 5)
	if _, members := away.directory.Members(1); len(members) != 2 ||
		members[1].Peer != peerOf(t, 21) {
		t.Errorf("members %+v", members)
	}
}

// liar answers each request for trails with these bytes, or never if there are none.
func liar(t testing.TB, network *memory.Network, self int, answer []byte) *trailNode {
	t.Helper()
	n := &trailNode{directory: vouchedDirectory(t, self)}
	n.host, n.control = controlOf(t, network, peerOf(t, self))
	requests, err := wire.New(wire.Config{Host: n.host, Lane: TrailLane, Logger: quiet,
		Admit: func(rdmanet.PeerID) bool { return true }, BodyMax: 1 << 20,
		Serve: func(ctx context.Context, request *wire.Served) error {
			if answer == nil {
				<-ctx.Done()
				return ctx.Err()
			}
			return request.End(answer)
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(requests.Close)
	return n
}

// trailAnswer is an answer with the trail of a shard.
func trailAnswer(shard ledger.ShardID, trail []*ledger.Certificate) []byte {
	answer := []byte{trailVersion}
	for _, c := range trail {
		answer = appendTrailItem(answer, shard, c.Encode())
	}
	return answer
}

// Members of the changing shard and a fellow lie about its members, all of them louder than the
// honest one. None is believed, and none keeps the truth away.
func TestLiarsAboutMembers(t *testing.T) {
	t.Parallel()
	network, h := memory.NewNetwork(), newHistory(t, 1).join(20)
	forged := newHistory(t, 1)
	forged.present = map[ledger.MemberIndex]int{0: 40, 1: 41, 2: 42}
	forged.join(43).join(44).join(45)
	node := trailNodeOf(t, network, 0, time.Hour, nil)
	before, _ := node.directory.Members(1)
	liars := map[int]*trailNode{
		1: liar(t, network, 1, trailAnswer(1, forged.trail)), // the fellow
		3: liar(t, network, 3, trailAnswer(1, forged.trail)),
		5: liar(t, network, 5, nil),
		6: liar(t, network, 6, []byte{9, 9}),
	}
	node.announcing(t, 0)
	for self, lying := range liars {
		said := Announcement{Shard: 1, Mode: report.ModeFollowing, Epoch: 1 << 40}
		if self == 6 {
			said.Shard = 2
		}
		if err := lying.control.Send(peerOf(t, 0), wire.KindShard, said.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all liars were asked", func() bool {
		node.exchange.mu.Lock()
		defer node.exchange.mu.Unlock()
		return len(node.exchange.paused) == len(liars)
	})
	if after, members := node.directory.Members(1); after != before || len(members) != 3 {
		t.Errorf("members %d %+v", after, members)
	}
	honest := trailNodeOf(t, network, 4, time.Hour, h.trail)
	honest.announcing(t, 1)
	node.knows(t, 1, 1)
}

// A trail that is larger than an answer comes in several.
func TestLongTrail(t *testing.T) {
	t.Parallel()
	network, h := memory.NewNetwork(), newHistory(t, 1)
	for i := range 8 {
		h.join(100 + i).leave(ledger.MemberIndex(3 + i))
	}
	trailNodeOf(t, network, 4, time.Hour, h.trail)
	node := trailNodeOf(t, network, 0, time.Hour, nil)
	node.exchange.Newer(peerOf(t, 4), 1, 1)
	node.knows(t, 1, 16)
}

// What a node knows already is not asked for, and a peer that was wrong is left alone for a while.
func TestNewsThatAreNone(t *testing.T) {
	t.Parallel()
	x := &TrailExchange{config: TrailExchangeConfig{Directory: vouchedDirectory(t, 0),
		Every: time.Minute}, newer: make(chan struct{}, 1), paused: map[rdmanet.PeerID]pause{}}
	h := newHistory(t, 1).join(20)
	x.Newer(peerOf(t, 3), 1, 1)
	x.Newer(peerOf(t, 3), 1, 9) // a peer waits once
	x.Newer(peerOf(t, 4), 1, 2)
	x.Newer(peerOf(t, 5), 1, 0)
	if len(x.waiting) != 2 {
		t.Fatalf("%+v wait", x.waiting)
	}
	learn(t, x.config.Directory, 1, h.trail)
	if peer, any := x.next(); !any || peer != peerOf(t, 4) {
		t.Errorf("%s is next", peer)
	}
	if peer, any := x.next(); any {
		t.Errorf("then %s", peer)
	}
	x.judge(peerOf(t, 4), false)
	x.Newer(peerOf(t, 4), 1, 3)
	if len(x.waiting) != 0 {
		t.Error("a peer that was wrong is asked again at once")
	}
	x.judge(peerOf(t, 4), true)
	x.Newer(peerOf(t, 4), 1, 3)
	if len(x.waiting) != 1 {
		t.Error("a peer that was right is not asked")
	}
	x.judge("stranger", false)
	if len(x.paused) != 0 {
		t.Errorf("%+v are paused", x.paused)
	}
}

func TestTrailMessages(t *testing.T) {
	t.Parallel()
	epochs := []ledger.MembersEpoch{trailUnwanted, 7, 0}
	request := encodeTrailRequest(epochs)
	if got, err := decodeTrailRequest(request); err != nil || !reflect.DeepEqual(got, epochs) {
		t.Errorf("%v, %v", got, err)
	}
	h := newHistory(t, 1).join(20).leave(0)
	answer := trailAnswer(1, h.trail)
	trails, err := decodeTrails(answer, epochs)
	if err != nil || len(trails) != 3 || len(trails[1]) != 2 ||
		!bytes.Equal(trails[1][1].Encode(), h.trail[1].Encode()) {
		t.Errorf("%v, %v", trails, err)
	}
	clear(answer)
	if !bytes.Equal(trails[1][0].Encode(), h.trail[0].Encode()) {
		t.Error("a certificate shares the memory of the answer")
	}
	answer = trailAnswer(1, h.trail)
	whole := len(trailAnswer(1, h.trail[:1]))
	for size := range answer {
		_, err := decodeTrails(answer[:size], epochs)
		if size != 1 && size != whole && !errors.Is(err, ErrMalformed) {
			t.Fatalf("the first %d bytes: %v", size, err)
		}
	}
	for name, malformed := range map[string][]byte{
		"a shard that there is not":   trailAnswer(3, h.trail),
		"a shard that is not wanted":  trailAnswer(0, h.trail),
		"something else":              appendTrailItem([]byte{trailVersion}, 1, []byte{1, 2}),
		"bytes after the certificate": append(trailAnswer(1, h.trail), 1),
		"another version":             {7},
		"too large": appendTrailItem([]byte{trailVersion}, 1,
			make([]byte, ledger.MaxCertificateBytes+1)),
	} {
		if _, err := decodeTrails(malformed, epochs); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, malformed := range [][]byte{nil, request[:8], append(bytes.Clone(request), 1),
		encodeTrailRequest(make([]ledger.MembersEpoch, ledger.MaxShards+1)), {9}} {
		if _, err := decodeTrailRequest(malformed); !errors.Is(err, ErrMalformed) {
			t.Errorf("a request of %d bytes: %v", len(malformed), err)
		}
	}
	said := Announcement{Shard: 2, Mode: report.ModeOrdering, Epoch: 12}
	if got, err := DecodeAnnouncement(said.Encode()); err != nil || got.Epoch != 12 ||
		got.Membership != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := NewTrailExchange(TrailExchangeConfig{}); err == nil {
		t.Error("an exchange of nothing")
	}
}

// Whatever members of the changing shard and fellows announce, no membership follows from it. It
// only says which of them to ask for a trail.
func TestVouchedAnnouncementsProveNothing(t *testing.T) {
	t.Parallel()
	d := vouchedDirectory(t, 0)
	_, control := controlOf(t, memory.NewNetwork(), peerOf(t, 0))
	var told []news
	announcer, err := NewAnnouncer(AnnouncerConfig{Directory: d, Control: control, Logger: quiet,
		Own: func() Announcement { return Announcement{Mode: report.ModeOrdering} },
		Newer: func(peer rdmanet.PeerID, shard ledger.ShardID, epoch ledger.MembersEpoch) {
			told = append(told, news{peer, shard, epoch})
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer announcer.Close()
	learn(t, d, 1, newHistory(t, 1).join(20).trail)
	_, before := d.Members(1)
	moreKeys := changed(9, map[ledger.MemberIndex]int{0: 3, 1: 4, 2: 5, 3: 40, 4: 41, 5: 42, 6: 43})
	otherAddress := changed(9, map[ledger.MemberIndex]int{0: 3, 1: 4, 2: 5, 3: 20})
	otherAddress.Members[1].Address = "198.51.100.1:7"
	for _, from := range []int{1, 3} { // a fellow, and a member of the shard
		for _, membership := range []ledger.Membership{moreKeys, otherAddress} {
			said := Announcement{Shard: 1, Mode: report.ModeFollowing, Membership: &membership}
			announcer.receive(rdmanet.Peer{ID: peerOf(t, from)}, said.Encode())
		}
		for _, epoch := range []ledger.MembersEpoch{1, 7} { // 1 is known
			said := Announcement{Shard: 1, Mode: report.ModeFollowing, Epoch: epoch}
			announcer.receive(rdmanet.Peer{ID: peerOf(t, from)}, said.Encode())
		}
	}
	for shard, from := range map[ledger.ShardID]int{1: 6, 0: 1, 9: 1} { // not theirs to say
		said := Announcement{Shard: shard, Mode: report.ModeFollowing, Epoch: 8}
		announcer.receive(rdmanet.Peer{ID: peerOf(t, from)}, said.Encode())
	}
	if want := []news{{peerOf(t, 1), 1, 7}, {peerOf(t, 3), 1, 7}}; !slices.Equal(told, want) {
		t.Errorf("news %+v", told)
	}
	if _, after := d.Members(1); !slices.Equal(before, after) {
		t.Errorf("members %+v", after)
	}
}
