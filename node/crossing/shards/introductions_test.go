package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// directoryOf is a directory for a book with or without vouched crossings.
func directoryOf(t testing.TB, vouched bool, self int) *Directory {
	t.Helper()
	if vouched {
		return vouchedDirectory(t, self)
	}
	return directory(t, self)
}

// historyOf is newHistory for a book with or without vouched crossings.
func historyOf(t testing.TB, vouched bool, shard int) *history {
	t.Helper()
	h := newHistory(t, shard)
	h.genesis = directoryOf(t, vouched, 3*shard).genesis
	h.operator, h.head = ledgertest.NewOperator(h.genesis), h.genesis.Block()
	return h
}

// introducing starts the introductions of a node with the trail of its own shard.
func introducing(t testing.TB, network *memory.Network, d *Directory, self rdmanet.PeerID,
	every time.Duration, own []*ledger.Certificate) *Introductions {
	t.Helper()
	host, err := network.Host(self)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close(t.Context()) })
	x, err := NewIntroductions(IntroductionsConfig{Directory: d, Host: host, Logger: quiet,
		Every: every, Timeout: 10 * time.Second, Bytes: 2000,
		Own: func(from ledger.MembersEpoch, bytes int) (some []*ledger.Certificate, _ error) {
			for _, c := range own[min(int(from), len(own)):] {
				if bytes -= len(c.Encode()); bytes < 0 && len(some) > 0 {
					break
				}
				some = append(some, c)
			}
			return some, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

// All members of a shard were replaced, more often than one introduction tells. One of the new ones
// makes them known to a node of another shard that was away, with or without vouched crossings.
func TestStrangersIntroduceThemselves(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{true, false} {
		t.Run(fmt.Sprintf("vouched: %t", vouched), func(t *testing.T) {
			t.Parallel()
			network, h := memory.NewNetwork(), historyOf(t, vouched, 1)
			for i := range 8 {
				h.join(100 + i).leave(ledger.MemberIndex(i))
			}
			away := directoryOf(t, vouched, 0)
			introducing(t, network, away, peerOf(t, 0), time.Hour, nil)
			known := directoryOf(t, vouched, 3) // of a member that joined
			known.SetSelf(peerOf(t, 107))
			introducing(t, network, known, peerOf(t, 107), 10*time.Millisecond, h.trail)
			eventually(t, "the new members are known", func() bool {
				_, members := away.Members(1)
				return len(members) == 3 && members[2].Peer == peerOf(t, 107) &&
					members[2].Index == 10 && members[2].Address == ledgertest.Member(107).Address
			})
			if _, _, known := away.Find(peerOf(t, 3)); known {
				t.Error("a member that left is known")
			}
			changes := away.Changes()
			if len(changes) != 1 || changes[0].Membership.Number != 16 ||
				vouched != (len(changes[0].Trail) == 16) {
				t.Errorf("changes %+v", changes)
			}
		})
	}
}

// A lost shard's new members stay strangers, with or without vouched crossings, and a node does not
// introduce itself to those of a lost shard.
func TestStrangersOfALostShard(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{true, false} {
		t.Run(fmt.Sprintf("vouched: %t", vouched), func(t *testing.T) {
			t.Parallel()
			h := historyOf(t, vouched, 1).join(20).leave(0)
			d := directoryOf(t, vouched, 0)
			open := doorOf(t, d)
			d.Lose(1, time.Unix(1000, 0))
			if peers := d.unheard(); len(peers) != 3 {
				t.Errorf("it introduces itself to %d members, want those of shard 2", len(peers))
			}
			if epoch, err := open.hear("a", said(d, 1, 0, h.trail)); !errors.Is(err, ErrMalformed) {
				t.Errorf("it hears a lost shard, up to epoch %d: %v", epoch, err)
			}
			if _, members := d.Members(1); len(members) > 0 || len(d.Changes()) > 0 {
				t.Errorf("the lost shard has members %v", members)
			}
			if _, _, known := d.Find(peerOf(t, 20)); known {
				t.Error("a member of the lost shard is known")
			}
			// One that was heard, and whose words are decoded, before the loss.
			late := directoryOf(t, vouched, 0)
			decoded, err := decodeIntroduction(said(late, 1, 0, h.trail), late)
			if err != nil {
				t.Fatal(err)
			}
			late.Lose(1, time.Unix(1000, 0))
			learned, _, err := late.LearnIntroduction(decoded.shard, decoded.from, decoded.further)
			if _, members := late.Members(1); learned || len(members) > 0 {
				t.Errorf("the loss is undone by an introduction: %v, %v", members, err)
			}
		})
	}
}

// said is an introduction as a stranger sends it.
func said(d *Directory, shard ledger.ShardID, from ledger.MembersEpoch,
	certificates []*ledger.Certificate) []byte {
	genesis, err := d.genesis.ForShard(shard)
	if err != nil {
		panic(err)
	}
	return encodeIntroduction(genesis.Hash(), shard, from, certificates)
}

// door is a node's door for strangers, with a time of its own.
type door struct {
	*Introductions
	time time.Time
	read int // introductions that were read
}

func doorOf(t testing.TB, d *Directory) *door {
	t.Helper()
	open := &door{time: time.Unix(1000, 0), Introductions: introducing(t, memory.NewNetwork(), d,
		d.Self(), time.Hour, nil)}
	open.gate.now = func() time.Time { return open.time }
	return open
}

// hear lets a stranger speak.
func (d *door) hear(from string, introduction []byte) (ledger.MembersEpoch, error) {
	answer, err := d.take(from, func() ([]byte, error) {
		d.read++
		return introduction, nil
	})
	if err != nil {
		return 0, err
	}
	return decodeIntroduced(answer)
}

// What a stranger cannot prove changes nothing, and the stranger is not heard again for a while.
func TestFalseIntroductions(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{true, false} {
		h := historyOf(t, vouched, 1).join(20)
		good := h.trail
		forged := historyOf(t, vouched, 1)
		forged.present = map[ledger.MemberIndex]int{0: 40, 1: 41, 2: 42}
		forged.join(43)
		few := historyOf(t, vouched, 1)
		few.present = map[ledger.MemberIndex]int{0: 3}
		few.join(43)
		unproved := *good[0]
		unproved.Change = nil
		elsewhere := historyOf(t, !vouched, 1).join(20)
		d := directoryOf(t, vouched, 0)
		genesis := elsewhere.genesis.Hash()
		large := said(d, 1, 0, nil)
		large = append(binary.LittleEndian.AppendUint32(large, ledger.MaxCertificateBytes+1),
			make([]byte, ledger.MaxCertificateBytes+1)...)
		for name, introduction := range map[string][]byte{
			"forged":                      said(d, 1, 0, forged.trail),
			"of too few":                  said(d, 1, 0, few.trail),
			"without the change":          said(d, 1, 0, []*ledger.Certificate{&unproved}),
			"of another epoch":            said(d, 1, 0, h.branch().leave(0).trail[1:]),
			"of another shard":            said(d, 2, 0, good),
			"of the own shard":            said(d, 0, 0, historyOf(t, vouched, 0).join(20).trail),
			"of no shard":                 encodeIntroduction(genesis, 7, 0, good),
			"of another book":             encodeIntroduction(genesis, 1, 0, elsewhere.trail),
			"of another book, it denies":  said(d, 1, 0, elsewhere.trail),
			"of a key of another shard":   said(d, 1, 0, historyOf(t, vouched, 1).join(6).trail),
			"of a certificate too large":  large,
			"of half of a certificate":    said(d, 1, 0, good)[:300],
			"of an unreadable one":        append(said(d, 1, 0, nil), 2, 0, 0, 0, 1, 2),
			"of another version":          {9},
			"of nothing":                  {},
			"with bytes after its shards": append(said(d, 1, 0, good), 1),
		} {
			d := directoryOf(t, vouched, 0)
			open := doorOf(t, d)
			_, before := d.Members(1)
			if epoch, err := open.hear("192.0.2.1", introduction); err == nil {
				t.Errorf("an introduction %s is believed: epoch %d", name, epoch)
			}
			if _, after := d.Members(1); !slices.Equal(before, after) || len(d.Changes()) > 0 ||
				d.Epoch(1) > 0 {
				t.Errorf("an introduction %s: members %+v", name, after)
			}
			if wasted := open.gate.waste.Sub(open.time); name == "of another book" && wasted > 0 {
				t.Errorf("an introduction %s wasted %v", name, wasted)
			}
			read := open.read
			if _, err := open.hear("192.0.2.1", said(d, 1, 0, good)); !errors.Is(err, errGate) ||
				open.read > read {
				t.Errorf("after an introduction %s its address is heard: %v", name, err)
			}
			if epoch, err := open.hear("192.0.2.2", said(d, 1, 0, good)); err != nil || epoch != 1 {
				t.Errorf("after an introduction %s nobody is heard: %v", name, err)
			}
			open.time = open.time.Add(falsePause + callerPause)
			if epoch, err := open.hear("192.0.2.1", said(d, 1, 0, good)); err != nil || epoch != 1 {
				t.Errorf("later than an introduction %s its address is not heard: %v", name, err)
			}
		}
	}
}

// An old trail lowers nothing, whichever caller repeats it, nor does a newer one that does not
// begin where the known one ends. What is known is not verified again.
func TestRepeatedIntroductions(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{true, false} {
		d, h := directoryOf(t, vouched, 0), historyOf(t, vouched, 1).join(20).leave(0).join(21)
		open := doorOf(t, d)
		if epoch, err := open.hear("a", said(d, 1, 0, h.trail)); err != nil || epoch != 3 {
			t.Fatalf("epoch %d, %v", epoch, err)
		}
		_, before := d.Members(1)
		spoilt := *h.trail[1]
		spoilt.Seals = nil
		further := h.branch().leave(1).leave(2).trail
		for name, introduction := range map[string][]byte{
			"the same":                   said(d, 1, 0, h.trail),
			"an older one":               said(d, 1, 0, h.trail[:1]),
			"the middle":                 said(d, 1, 1, h.trail[1:2]),
			"nothing":                    said(d, 1, 0, nil),
			"after a gap":                said(d, 1, 4, further[4:]),
			"a known one without seals":  said(d, 1, 0, []*ledger.Certificate{h.trail[0], &spoilt}),
			"known bytes without a form": append(said(d, 1, 0, nil), 2, 0, 0, 0, 1, 2),
		} {
			if epoch, err := open.hear("a", introduction); err != nil || epoch != 3 {
				t.Errorf("%s: epoch %d, %v", name, epoch, err)
			}
			if _, after := d.Members(1); !slices.Equal(before, after) {
				t.Errorf("%s: members %+v", name, after)
			}
		}
		if epoch, err := open.hear("a", said(d, 1, 1, further[1:])); err != nil || epoch != 5 {
			t.Errorf("epoch %d, %v", epoch, err)
		}
	}
}

// Two introductions may be read at a time. The second one begins before what is known by then.
func TestIntroductionsThatOverlap(t *testing.T) {
	t.Parallel()
	d, h := vouchedDirectory(t, 0), newHistory(t, 1).join(20).leave(0).join(21)
	for _, each := range []struct {
		from, to, known int
		learned         bool
	}{{0, 2, 2, true}, {0, 2, 2, false}, {1, 3, 3, true}, {3, 3, 3, false}, {4, 4, 3, false}} {
		learned, wasted, err := d.LearnIntroduction(1, ledger.MembersEpoch(each.from),
			h.trail[min(each.from, 3):min(each.to, 3)])
		if learned != each.learned || wasted != 0 || err != nil || d.Epoch(1) !=
			ledger.MembersEpoch(each.known) {
			t.Errorf("%+v: %v, %d, %v", each, learned, wasted, err)
		}
	}
}

// In a trusting book members announce their shard's members with a number that also counts
// admissions of disks. A stranger's trail counts if it is newer, whatever the number, and what
// members announce afterwards counts as ever.
func TestIntroductionsAmongAnnouncements(t *testing.T) {
	t.Parallel()
	d, h := directory(t, 0), historyOf(t, false, 1).join(20).leave(0)
	open := doorOf(t, d)
	announced := changed(9, map[ledger.MemberIndex]int{1: 4, 2: 5, 3: 20}) // and 7 disks
	announced.Height = 2
	if !d.Learn(1, announced) {
		t.Fatal("an announcement does not count")
	}
	if epoch, err := open.hear("a", said(d, 1, 0, h.trail)); err != nil || epoch != 2 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
	if number, _ := d.Members(1); number != 9 {
		t.Errorf("a trail of the same members gives them the number %d", number)
	}
	h.join(21).leave(1)
	if epoch, err := open.hear("a", said(d, 1, 0, h.trail)); err != nil || epoch != 4 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
	number, members := d.Members(1)
	if number != 10 || len(members) != 3 || members[2].Peer != peerOf(t, 21) {
		t.Errorf("members %d %+v", number, members)
	}
	fellow := directory(t, 1) // it has heard the same announcement, and gets a relay
	if !fellow.Learn(1, announced) || !fellow.Learn(1, d.Changes()[0].Membership) {
		t.Error("a fellow does not take over what a stranger proved")
	}
	announced = changed(11, map[ledger.MemberIndex]int{2: 5, 3: 20, 4: 21})
	announced.Height = 4
	if !d.Learn(1, announced) {
		t.Error("the true number does not count")
	}
}

// What holds is taken over even if a stranger puts something forged behind it, so that it costs
// nothing the next time. A forged certificate costs what its signatures do.
func TestIntroductionThatHoldsInPart(t *testing.T) {
	t.Parallel()
	d, h := vouchedDirectory(t, 0), newHistory(t, 1).join(20).join(21)
	forged := *h.branch().leave(0).trail[2]
	forged.Seals = slices.Clone(forged.Seals)
	forged.Seals[len(forged.Seals)-1].Signature[5] ^= 1
	open := doorOf(t, d)
	_, err := open.hear("a", said(d, 1, 0, append(slices.Clone(h.trail), &forged)))
	if !errors.Is(err, ledger.ErrCertificate) || d.Epoch(1) != 2 {
		t.Errorf("epoch %d, %v", d.Epoch(1), err)
	}
	if wasted := open.gate.waste.Sub(open.time); wasted != 5*wastePause {
		t.Errorf("it wasted %v", wasted)
	}
}

// A certificate with the seals of very many who are no members is refused before any of them is
// verified. So it must not use up what all strangers together may waste.
func TestIntroductionWithSealsOfNobody(t *testing.T) {
	t.Parallel()
	d, h := vouchedDirectory(t, 0), newHistory(t, 1).join(20)
	forged := *h.trail[0]
	forged.Seals = make([]ledger.Seal, ledger.MaxMembers)
	for i := range forged.Seals {
		forged.Seals[i].Member = ledger.MemberIndex(i)
	}
	open := doorOf(t, d)
	_, err := open.hear("a", said(d, 1, 0, []*ledger.Certificate{&forged}))
	if !errors.Is(err, ledger.ErrCertificate) {
		t.Errorf("error %v", err)
	}
	if wasted := open.gate.waste.Sub(open.time); wasted <= 0 || wasted > 3*wastePause {
		t.Errorf("with 3 members it wasted %v", wasted)
	}
}

// A flood of forged introductions from ever new addresses costs no more than a share of a
// processor, and no memory. An honest stranger gets through between them.
func TestFloodOfIntroductions(t *testing.T) {
	t.Parallel()
	d, h := vouchedDirectory(t, 0), newHistory(t, 1).join(20)
	forged := *h.trail[0]
	forged.Seals = slices.Clone(forged.Seals)
	forged.Seals[2].Signature[5] ^= 1
	open := doorOf(t, d)
	bad, good := said(d, 1, 0, []*ledger.Certificate{&forged}), said(d, 1, 0, h.trail)
	for i := range 2 * wasteBurst / 3 {
		_, _ = open.hear(fmt.Sprintf("198.51.%d.%d", i>>8, i&0xff), bad)
	}
	// One may come while there is room, and end beyond it.
	if most := wasteBurst/3 + 1; open.read > most {
		t.Errorf("%d of them were read, at most %d are allowed", open.read, most)
	}
	if len(open.gate.callers) > callersMax {
		t.Errorf("%d addresses are remembered", len(open.gate.callers))
	}
	if _, err := open.hear("192.0.2.1", good); !errors.Is(err, errGate) {
		t.Errorf("while it costs too much: %v", err)
	}
	open.time = open.time.Add(3 * wastePause)
	if epoch, err := open.hear("192.0.2.1", good); err != nil || epoch != 1 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
}

// Each address speaks so often and no more. Addresses of one subscriber are one.
func TestGate(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := newGate()
	g.now = func() time.Time { return now }
	spent := func(from string) {
		t.Helper()
		for i := range callerBurst {
			if err := g.admit(from); err != nil {
				t.Fatalf("%s, introduction %d: %v", from, i, err)
			}
		}
		if err := g.admit(from); !errors.Is(err, errGate) {
			t.Errorf("one introduction of %s too many: %v", from, err)
		}
	}
	spent("192.0.2.1")
	spent("2001:db8::1")
	spent("not an address")
	for from, want := range map[string]error{"::ffff:192.0.2.1": errGate, "2001:db8::2": errGate,
		"2001:db8::2%eth0": errGate, "192.0.2.2": nil, "2001:db8:0:1::1": nil} {
		if err := g.admit(from); !errors.Is(err, want) {
			t.Errorf("%s: %v", from, err)
		}
	}
	now = now.Add(callerPause)
	if err := g.admit("192.0.2.1"); err != nil {
		t.Errorf("after a while: %v", err)
	}
	if err := g.admit("192.0.2.1"); !errors.Is(err, errGate) {
		t.Errorf("and once more: %v", err)
	}
	// The addresses that were false are remembered the longest.
	g.blame("203.0.113.1", 0)
	for i := range 2 * callersMax {
		_ = g.admit(fmt.Sprintf("198.51.%d.%d", i>>8, i&0xff))
	}
	if err := g.admit("203.0.113.1"); !errors.Is(err, errGate) || len(g.callers) > callersMax {
		t.Errorf("%d addresses are remembered: %v", len(g.callers), err)
	}
}

// A node introduces itself to members that it does not hear, and to nobody else. Nor does it if
// its shard has the members of the genesis.
func TestWhoIsUnheard(t *testing.T) {
	t.Parallel()
	d := vouchedDirectory(t, 0)
	now := time.Unix(1000, 0)
	d.now = func() time.Time { return now }
	for _, k := range []int{3, 4, 6, 7, 8} {
		d.Heard(peerOf(t, k), Announcement{Shard: ledger.ShardID(k / 3),
			Mode: report.ModeOrdering}, now)
	}
	d.Lost(peerOf(t, 7))
	got := d.unheard()
	slices.Sort(got)
	want := []rdmanet.PeerID{peerOf(t, 5), peerOf(t, 7)}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("unheard: %v, want %v", got, want)
	}
	now = now.Add(ReportLifetime + time.Second)
	if got := d.unheard(); len(got) != 6 {
		t.Errorf("later: %v", got)
	}
	network := memory.NewNetwork()
	open := introducing(t, network, vouchedDirectory(t, 3), peerOf(t, 3), time.Hour, nil)
	x := introducing(t, network, d, peerOf(t, 0), time.Hour, nil)
	open.gate.callers["seen"] = time.Time{}
	if err := x.introduce(peerOf(t, 3)); err != nil || len(open.gate.callers) != 1 {
		t.Errorf("a node without a trail introduces itself: %v", err)
	}
	if _, err := NewIntroductions(IntroductionsConfig{}); err == nil {
		t.Error("introductions of nothing")
	}
}

// An answer that is none, or that does not take over what was shown, ends an introduction.
func TestAnswersToIntroductions(t *testing.T) {
	t.Parallel()
	network, h := memory.NewNetwork(), newHistory(t, 1).join(20).leave(0)
	for i := range 8 {
		h.join(100 + i)
	}
	var answer []byte
	calls := 0
	host, err := network.Host(peerOf(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close(t.Context()) })
	if err := host.Introduced(func(string, func() ([]byte, error)) ([]byte, error) {
		calls++
		return answer, nil
	}); err != nil {
		t.Fatal(err)
	}
	x := introducing(t, network, vouchedDirectory(t, 3), peerOf(t, 20), time.Hour, h.trail)
	for name, each := range map[string]struct {
		answer []byte
		calls  int
		fails  bool
	}{
		"nothing":            {nil, 1, true},
		"another version":    {[]byte{7, 0, 0, 0, 0, 0, 0, 0, 0}, 1, true},
		"bytes after it":     {append(encodeIntroduced(10), 1), 1, true},
		"not believed":       {encodeIntroduced(0), 1, true},
		"it knows all":       {encodeIntroduced(10), 1, false},
		"it knows even more": {encodeIntroduced(1 << 60), 1, false},
		"all but the last":   {encodeIntroduced(9), 2, true},
	} {
		answer, calls = each.answer, 0
		if err := x.introduce(peerOf(t, 0)); (err != nil) != each.fails || calls != each.calls {
			t.Errorf("%s: %d calls, %v", name, calls, err)
		}
	}
	x.Close()
	if _, err := x.take("a", func() ([]byte, error) { return nil, nil }); err == nil {
		t.Error("after the end a stranger is heard")
	}
}
