package shard

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// While blocks are being set aside for a decision, this member learns that one of them is durable.
// The blocks stay. That is a fork only if the decision goes on without the block.
func TestBlocksBecomeDurableWhileTheyAreSetAside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rounds  []order.Round // of the tail
		branch  byte          // of the decision's base
		replays int
		starts  bool
		forks   bool
	}{
		"the tail has it":           {[]order.Round{10}, 0, 0, true, false},
		"the tail has it, and more": {[]order.Round{10, 11}, 0, 1, false, false},
		"the base is another block": {[]order.Round{10}, 1, 0, false, true},
	} {
		m, chain := newTestMember(t, 3)
		d := decisionOf(2, make([]byte, len(c.rounds))...)
		d.Base.Hash = hashAt(9, c.branch)
		for i, round := range c.rounds {
			d.Tail[i].Round, d.Tail[i].Epoch, d.Tail[i].Content = round, 1, [32]byte{byte(i)}
		}
		m.learns(d)
		for i := range d.Tail {
			m.synod.Holds(d.Tail[i].Content)
		}
		m.pending, m.pendingAt, m.fetchedTo, m.followed = d, m.now, 10, 1
		chain.height, chain.stored, chain.durable = 10, 10, 8
		m.activate()
		asides := effectsOf[SetAside](m)
		if m.explain(nil); len(asides) != 1 || m.View().Reason.Kind != SettingAside {
			t.Fatalf("%s: %+v, %+v", name, asides, m.View().Reason)
		}
		said := m.peer(1).Announcement
		said.Heights, said.Tip = Heights{Ordered: 10, Stored: 10, Durable: 10}, hashAt(10, 0)
		m.Step(AnnouncementReceived{From: 1, Announcement: said})
		for _, know := range effectsOf[KnowDurable](m) {
			chain.durable = max(chain.durable, know.Height)
		}
		if chain.durable != 10 || m.end != nil {
			t.Fatalf("%s: durable up to %d, end %v", name, chain.durable, m.end)
		}
		m.Step(WasSetAside{Durable: true})
		starts := m.starting != nil
		replays := 0
		for _, e := range m.Ready() {
			switch e := e.(type) {
			case SetAside:
				t.Errorf("%s: it sets the blocks above %d aside", name, e.Keep)
			case Replay:
				replays += len(e.Rounds)
			}
		}
		if replays != c.replays || starts != c.starts || errors.Is(m.end, ErrFork) != c.forks {
			t.Errorf("%s: replays %d rounds, starts %v, end %v", name, replays, starts, m.end)
		}
		if !c.starts && (m.fetchedTo != 10 || m.followed != 1) {
			t.Errorf("%s: it forgets where its blocks come from", name)
		}
	}
}

// While blocks are being set aside, a promise reports the chain that stays: the blocks may be gone
// when the promise arrives. A base among them is not here any more. A record goes with the block
// that it follows.
func TestPromisesReportTheChainThatStays(t *testing.T) {
	t.Parallel()
	for follows, stays := range map[uint64]bool{9: true, 10: false} {
		promiseWhileSettingAside(t, &Record{Height: follows, Hash: hashAt(follows, 0), After: 11,
			Rounds: []generation.TailRound{{Round: 12}}}, stays)
	}
}

func promiseWhileSettingAside(t *testing.T, record *Record, stays bool) {
	t.Helper()
	m, chain := newTestMember(t, 3)
	m.recorded = record
	d := decisionOf(2, 0)
	d.Tail[0].Epoch = 1
	m.learns(d)
	gone := generation.Head{Generation: 2, Height: 10, Hash: hashAt(10, 0), Round: 10}
	here := generation.Head{Generation: 2, Height: 9, Hash: hashAt(9, 0), Round: 9}
	durable := generation.Head{Generation: 2, Height: 8, Hash: hashAt(8, 0), Round: 8}
	chain.height, chain.stored, chain.durable = 10, 10, 8
	for _, base := range []generation.Head{durable, here, gone} {
		m.synod.Holds(base.Hash)
		m.keepBase(base)
	}
	if want := []generation.Head{here, gone}; !slices.Equal(m.heldBases, want) {
		t.Errorf("it remembers the bases %+v, want %+v", m.heldBases, want)
	}
	m.synod.Holds(d.Tail[0].Content)
	m.pending, m.pendingAt = d, m.now
	m.activate()
	if asides := effectsOf[SetAside](m); len(asides) != 1 || asides[0].Keep != 9 {
		t.Fatalf("%+v", asides)
	}
	if want := []generation.Head{here}; !slices.Equal(m.heldBases, want) {
		t.Errorf("it still remembers the bases %+v, want %+v", m.heldBases, want)
	}
	ballot := generation.Ballot{Number: 5, Proposer: 1, Disk: diskOf(1)}
	m.Step(SynodReceived{From: 1, Message: generation.Message{Kind: generation.KindPrepare,
		Generation: 3, Ballot: ballot, Known: d}})
	m.Ready()
	m.Step(Saved{})
	promised := false
	for _, sent := range effectsOf[SendSynod](m) {
		if sent.Message.Kind == generation.KindPromise {
			promised = true
			report := sent.Message.Report
			if report.Head.Height != 9 || report.Head.Hash != hashAt(9, 0) ||
				(len(report.Recorded) > 0) != stays {
				t.Errorf("it reports %+v, recorded %v", report.Head, report.Recorded)
			}
		}
	}
	if !promised {
		t.Fatal("no promise")
	}
	m.Step(SynodReceived{From: 1, Message: generation.Message{Kind: generation.KindAccept,
		Generation: 3, Ballot: ballot, Value: &generation.Decision{Generation: 3, Base: gone,
			Members: serversTo(3), Disks: d.Disks}}})
	wanted := m.synod.Wanted()
	if len(wanted) != 1 || wanted[0].Base == nil || wanted[0].Base.Hash != gone.Hash {
		t.Errorf("it wants %+v", wanted)
	}
	chain.height, chain.stored = 9, 9
	m.Step(WasSetAside{})
	if m.job != idle || m.end != nil || (m.recorded != nil) != stays {
		t.Errorf("job %d, end %v, record %v", m.job, m.end, m.recorded)
	}
}
