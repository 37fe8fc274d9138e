package node_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
	core "github.com/ledgerd/ledgerd/shard"
)

// logging makes nodes log rounds.
func logging(nodes ...int) func(int, *home.Config) {
	return func(i int, config *home.Config) {
		for _, logs := range nodes {
			config.Ordering.LogRounds = config.Ordering.LogRounds || logs == i
		}
	}
}

// newStopped makes a shard with one block, whose nodes have stopped.
func newStopped(t *testing.T, nodes int, change func(int, *home.Config)) *shard {
	t.Helper()
	s := newShard(t, nodes, change)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.same()
	for i := range s.nodes {
		s.stop(i)
	}
	return s
}

// goOn starts all nodes of a shard, and checks that they go on and have transactions.
func (s *shard) goOn(ids []ledger.Hash) {
	s.t.Helper()
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(len(s.nodes)-1, report.LevelDurable, s.transfer())
	s.same()
	for i, n := range s.nodes {
		for _, id := range ids {
			if _, err := n.Store().Transaction(id); err != nil {
				s.t.Errorf("node %d lacks a transaction of a recorded round: %v", i, err)
			}
		}
	}
}

// promised returns what a stopped node promised, and in which run it worked.
func (s *shard) promised(i int) generation.State {
	s.t.Helper()
	text, err := os.ReadFile(s.homes[i].Generation())
	if err != nil {
		s.t.Fatal(err)
	}
	state, err := generation.DecodeState(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

// record writes complete rounds that are not in the chain into the journals of stopped nodes, and
// returns the ids of their transactions.
func (s *shard) record(homes ...int) (ids []ledger.Hash) {
	s.t.Helper()
	var rounds []order.Delivery
	for k := range 2 {
		bundle := s.client.Bundle(s.transfer())
		ids = append(ids, bundle.ID(0))
		batch := ledger.EncodeBatch(ledger.BatchHeader{Time: 1, Tip: s.homes[0].Genesis.Hash()},
			[][]byte{bundle.Encode()})
		payload := append(batch, 0) // no marks
		rounds = append(rounds, order.Delivery{Round: order.Round(k), Messages: []order.Message{
			{Origin: 0, Payload: payload}, {Origin: 1}, {Origin: 2}}})
	}
	for _, i := range homes {
		h := s.homes[i]
		opened, err := store.Open(h.Data(), h.Genesis, s.store)
		if err != nil {
			s.t.Fatal(err)
		}
		head := opened.Head()
		r := core.Record{Run: s.promised(i).Activated, Height: uint64(head.Height), Hash: head.Hash,
			After: order.Round(head.Round) + 5} // rounds that made no blocks
		for k := range rounds {
			rounds[k].Round = r.After + order.Round(k) + 1
			rounds[k].Epoch = order.Epoch(head.Epoch)
		}
		encoded := node.EncodeRecord(&r, rounds)
		if err := opened.PutRecord(encoded, ledger.Round(r.Last())); err != nil {
			s.t.Fatal(err)
		}
		if err := opened.Sync(); err != nil {
			s.t.Fatal(err)
		}
		if err := opened.Close(); err != nil {
			s.t.Fatal(err)
		}
	}
	return ids
}

// All nodes lost their power. Two of them had recorded rounds that were durable, and none had
// written their blocks. The shard goes on with the rounds, whether or not nodes still log rounds.
func TestRecordedRoundsAreTaken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(int, *home.Config){
		"as before": logging(0, 1, 2), "switched off": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStopped(t, 3, change)
			s.goOn(s.record(0, 1))
		})
	}
}

// The other nodes lost their disks. A recovery executes the rounds that one home recorded.
func TestRecoveryExecutesTheRecord(t *testing.T) {
	t.Parallel()
	s := newStopped(t, 3, logging(0, 1, 2))
	s.lose(func(h *home.Home) string { return h.Data() }, 0, 2)
	ids := s.record(1)
	r := s.plan(node.RecoveryOptions{}, s.all()...)
	if r.Forms || r.Refused != nil || r.Rounds != 2 {
		t.Fatalf("forms %v, refused %v, %d rounds", r.Forms, r.Refused, r.Rounds)
	}
	if _, err := r.Do(node.NewOperator(ledgertest.Key("operator"))); err != nil {
		t.Fatal(err)
	}
	s.goOn(ids)
}

// The furthest home did not take part in the run of a record that another home holds: it followed,
// knows the decision and has the same blocks. A recovery executes the record nevertheless, unless
// a home began a later run with all blocks before it, or knows a newer decision.
func TestRecoveryExecutesTheRecordOfAnotherHome(t *testing.T) {
	t.Parallel()
	s := newStopped(t, 5, logging(0, 1, 2, 3, 4))
	states := []generation.State{s.promised(0)} // of node 0, after each life
	s.goOn(nil)
	head := s.nodes[0].Store().Head()
	for i := range s.nodes {
		s.stop(i)
	}
	states = append(states, s.promised(0))
	s.lose(func(h *home.Home) string { return h.Data() }, 2, 3, 4)
	ids := s.record(1)
	run := s.promised(1).Activated

	later := states[1]
	later.Activated = generation.NewRun(run.Generation(), run.Eon()+1)
	later.Start = generation.Head{Height: uint64(head.Height), Hash: head.Hash,
		Round: order.Round(head.Round), Generation: run.Generation()}
	lost := later // a later run, with blocks that the disk lost
	lost.Start.Height++
	decided, newer := *states[1].Decided, states[1]
	decided.Generation++
	decided.Base, decided.Tail = later.Start, nil
	newer.Decided = &decided
	followed := states[0]
	followed.Decided = states[1].Decided
	if followed.Activated.Generation() >= run.Generation() {
		t.Fatalf("run %d did not follow run %d", run, followed.Activated)
	}
	var r *node.Recovery
	for _, c := range []struct {
		name   string
		state  generation.State
		rounds int
	}{{"a later run", later, 0}, {"a newer decision", newer, 0}, {"a lost block", lost, 2},
		{"followed", followed, 2}} {
		if err := home.WriteFile(s.homes[0].Generation(), c.state.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		r = s.plan(node.RecoveryOptions{}, s.all()...)
		if r.Forms || r.Refused != nil || r.From.Index != 0 || r.Rounds != c.rounds {
			t.Errorf("%s: forms %v, refused %v, from %s, %d rounds, want %d", c.name, r.Forms,
				r.Refused, r.From.Name, r.Rounds, c.rounds)
		}
	}
	if t.Failed() {
		return
	}
	if _, err := r.Do(node.NewOperator(ledgertest.Key("operator"))); err != nil {
		t.Fatal(err)
	}
	s.goOn(ids)
}

// killAllAndStart kills all nodes, whose chains are the same, and starts them after a change. They
// must have kept the last block, and order.
func (s *shard) killAllAndStart(change func()) {
	s.t.Helper()
	head := s.nodes[0].Store().Head()
	for i := range s.nodes {
		s.kill(i)
	}
	change()
	s.start(s.all()...)
	for i, n := range s.nodes {
		_, got, err := n.Store().Header(head.Height)
		if err != nil || got != head.Hash {
			s.t.Fatalf("node %d: block %d after the restart: %v, %v; want %v", i,
				head.Height, got, err, head.Hash)
		}
	}
	s.ordering(s.all()...)
}

// Some nodes log rounds, others do not. Everything that is acknowledged as durable stays when all
// are killed, and nodes change over at a start.
func TestSomeNodesLogRounds(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, logging(0, 1))
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for life := range 3 {
		for k := range 20 {
			s.submit(k%3, report.LevelDurable, s.transfer())
		}
		s.same()
		for i, h := range s.homes {
			marker, err := os.ReadFile(filepath.Join(h.Data(), "tip"))
			if err != nil {
				t.Fatal(err)
			}
			logs, records := h.Config.Ordering.LogRounds, bytes.Contains(marker,
				[]byte("ledgtip4"))
			if records && !logs && life == 0 || !records && logs {
				t.Errorf("node %d logs rounds %v, and its disk has records: %v", i, logs, records)
			}
		}
		s.killAllAndStart(func() {
			ordering := &s.homes[life].Config.Ordering
			ordering.LogRounds = !ordering.LogRounds
		})
	}
	s.submit(0, report.LevelDurable, s.transfer())
	s.same()
}
