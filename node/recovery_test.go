package node_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
)

// plan plans the recovery of a shard from some of its homes.
func (s *shard) plan(options node.RecoveryOptions, which ...int) *node.Recovery {
	s.t.Helper()
	for _, i := range which {
		options.Homes = append(options.Homes, s.homes[i])
	}
	options.Store = func(*home.Home) store.Options { return s.store }
	r, err := node.PlanRecovery(options)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// lose removes parts of homes.
func (s *shard) lose(what func(h *home.Home) string, which ...int) {
	s.t.Helper()
	for _, i := range which {
		if err := os.RemoveAll(what(s.homes[i])); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A decision names rounds that only one home holds, and its node has not executed them. The others
// executed them, acknowledged them as durable, and lost everything. After a recovery the rounds are
// in the chain, even if that node had begun to execute them, or knows only that it accepted the
// decision.
func TestRecoveryExecutesTheTail(t *testing.T) {
	t.Parallel()
	const left = 1
	for _, how := range []string{"decided", "accepted", "executed in part"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, 3, nil)
			s.start(s.all()...)
			s.ordering(s.all()...)
			s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
			s.same()
			for i := range s.nodes {
				s.stop(i)
			}
			s.lose(func(h *home.Home) string { return h.Data() }, 0, 2)
			kept := s.decideTail(left, how == "accepted", how == "executed in part")
			r := s.plan(node.RecoveryOptions{}, s.all()...)
			if r.Forms || r.Refused != nil || r.Rounds == 0 {
				t.Fatalf("forms %v, refused %v, %d rounds", r.Forms, r.Refused, r.Rounds)
			}
			if _, err := r.Do(node.NewOperator(ledgertest.Key("operator"))); err != nil {
				t.Fatal(err)
			}
			s.start(s.all()...)
			s.ordering(s.all()...)
			s.submit(0, report.LevelDurable, s.transfer())
			s.same()
			for _, id := range kept {
				if _, err := s.nodes[0].Store().Transaction(id); err != nil {
					t.Errorf("a durable transaction: %v", err)
				}
			}
		})
	}
}

// decideTail writes a decision with two rounds into the home of a stopped node, and returns the ids
// of their transactions. The node may know only that it accepted the decision, and may have
// executed the first round.
func (s *shard) decideTail(i int, accepted, begun bool) (ids []ledger.Hash) {
	s.t.Helper()
	h := s.homes[i]
	text, err := os.ReadFile(h.Generation())
	if err != nil {
		s.t.Fatal(err)
	}
	state, err := generation.DecodeState(text)
	if err != nil {
		s.t.Fatal(err)
	}
	opened, err := store.Open(h.Data(), h.Genesis, s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	head := opened.Head()
	value := *state.Decided
	value.Generation++
	value.Base = generation.Head{
		Generation: state.Decided.Generation, Height: uint64(head.Height), Hash: head.Hash,
		Round: order.Round(head.Round) + 5, // rounds that made no blocks
	}
	value.Tail = nil
	for k := range 2 {
		round := generation.TailRound{
			Round: value.Base.Round + order.Round(k) + 1, Epoch: order.Epoch(head.Epoch) + 1,
			Origins: []order.ServerID{0},
		}
		content := binary.LittleEndian.AppendUint64(nil, uint64(round.Epoch))
		content = binary.LittleEndian.AppendUint64(content, uint64(round.Round))
		bundle := s.client.Bundle(s.transfer())
		ids = append(ids, bundle.ID(0))
		batch := ledgertest.Batch(1, bundle)
		payload := append(slices.Clone(batch), 0) // no marks
		content = binary.LittleEndian.AppendUint32(content, 1)
		content = binary.LittleEndian.AppendUint32(content, 0)
		content = binary.LittleEndian.AppendUint32(content, uint32(len(payload)))
		content = append(content, payload...)
		if k == 0 && begun {
			_, err := opened.Apply(ledger.Epoch(round.Epoch), ledger.Round(round.Round),
				[][]byte{batch})
			if err != nil {
				s.t.Fatal(err)
			}
		}
		content = append(content, make([]byte, 4)...) // no server was removed
		round.Content = sha256.Sum256(content)
		// With prompt delivery, the round may be of a later state than its messages and its block.
		round.Epoch += 2
		value.Tail = append(value.Tail, round)
		path := filepath.Join(h.Rounds(), hex.EncodeToString(round.Content[:]))
		if err := errors.Join(os.MkdirAll(h.Rounds(), 0o755),
			home.WriteFile(path, content, 0o644)); err != nil {
			s.t.Fatal(err)
		}
	}
	state.Instance, state.Promised = value.Generation, generation.Ballot{}
	if accepted {
		state.Promised, state.Accepted = generation.Ballot{Number: 3}, generation.Ballot{Number: 3}
		state.AcceptedValue = &value
	} else {
		state.Decided = &value
	}
	err = errors.Join(opened.Close(), home.WriteFile(h.Generation(), state.Encode(), 0o644))
	if err != nil {
		s.t.Fatal(err)
	}
	return ids
}

// A shard whose majority forgot continues from the furthest remaining home, with all its blocks.
// The chain records the recovery.
func TestRecovery(t *testing.T) {
	t.Parallel()
	data := func(h *home.Home) string { return h.Data() }
	promises := func(h *home.Home) string { return h.Generation() }
	for _, c := range []struct {
		name    string
		nodes   int
		lost    func(h *home.Home) string
		which   []int
		again   bool // the nodes are started after the loss, and stopped
		gone    []int
		absent  []int
		marks   int
		word    string
		nothing bool // nothing was written before the loss
	}{
		{name: "two of three lose their data", nodes: 3, lost: data, which: []int{0, 2},
			marks: 2, word: "node-1"},
		{name: "two of three lose their data and start", nodes: 3, lost: data, which: []int{0, 2},
			again: true,
			marks: 2, word: "node-1"},
		{name: "all lose their promises", nodes: 3, lost: promises, which: []int{0, 1, 2},
			marks: 3, word: "node-0"},
		{name: "the furthest loses its promises, the others their data", nodes: 3, lost: data,
			which: []int{0, 1}, marks: 2, word: "node-2"},
		{name: "the only member loses its promises", nodes: 1, lost: promises, which: []int{0},
			marks: 1, word: "node-0"},
		{name: "the only member loses its promises and starts", nodes: 1, lost: promises,
			which: []int{0},
			again: true, marks: 1, word: "node-0"},
		{name: "two of three are gone", nodes: 3, gone: []int{0, 2}, marks: 2, word: "node-1"},
		{name: "three of five lose their data", nodes: 5, lost: data, which: []int{0, 1, 2},
			marks: 3, word: "node-3"},
		{name: "two of five lose their data, two are away", nodes: 5, lost: data,
			which:  []int{0, 1},
			absent: []int{3, 4},
			marks:  2, word: "node-2"},
		{name: "homes that were copied before their first start", nodes: 3, nothing: true,
			which: []int{0, 1, 2},
			lost:  func(h *home.Home) string { return "" }, marks: 3, word: "node-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, c.nodes, nil)
			var kept []ledger.Hash
			if c.nothing {
				for i := range s.homes {
					s.copied(i)
				}
			} else {
				s.start(s.all()...)
				s.ordering(s.all()...)
				s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
				for range 3 {
					kept = append(kept, s.submit(0, report.LevelDurable, s.transfer())[0].ID)
				}
				s.same()
				for i := range s.nodes {
					s.stop(i)
				}
			}
			if c.lost != nil && !c.nothing {
				s.lose(c.lost, c.which...)
			}
			if c.name == "the furthest loses its promises, the others their data" {
				s.lose(promises, 2)
				c.marks++
			}
			var options node.RecoveryOptions
			var left []int
			for i := range s.homes {
				name := s.homes[i].Name()
				switch {
				case slices.Contains(c.gone, i):
					options.Lost, s.gone[i] = append(options.Lost, name), true
				case slices.Contains(c.absent, i):
					options.Absent = append(options.Absent, name)
				default:
					left = append(left, i)
				}
			}
			if c.again {
				s.start(left...)
				s.eventually("the nodes say what to do", func() bool {
					return strings.Contains(s.nodes[left[0]].State().Reason, "ledgerd recover")
				})
				for _, i := range left {
					s.stop(i)
				}
			}
			r := s.plan(options, left...)
			if r.Forms || r.Refused != nil || r.ConfirmationWord() != c.word ||
				len(r.Changes) != c.marks {
				t.Fatalf("forms %v, refused %v, from %s, %d changes, waiting %+v", r.Forms,
					r.Refused, r.ConfirmationWord(),
					len(r.Changes), r.Waiting)
			}
			operators := []*node.Operator{node.NewOperator(ledgertest.Key("operator"))}
			if c.nodes == 1 {
				operators = nil // the only member signs for itself
			} else if _, err := r.Do(); !errors.Is(err, node.ErrRecovery) ||
				!strings.Contains(err.Error(), "operator") {
				t.Fatalf("without an operator's key: %v", err)
			}
			if c.nodes > 1 {
				stranger := node.NewOperator(ledgertest.Key("stranger"))
				if _, err := r.Do(stranger); !errors.Is(err, node.ErrRecovery) {
					t.Fatalf("with a stranger's key: %v", err)
				}
			}
			before := r.From.Head.Height
			done, err := r.Do(operators...)
			if err != nil {
				t.Fatal(err)
			}
			if done.Head.Height != before+ledger.Height(c.marks) {
				t.Errorf("%d changes from block %d lead to %d", c.marks, before, done.Head.Height)
			}
			if r := s.plan(options, left...); !r.Forms {
				t.Fatalf("after the recovery: %+v, %v", r.Waiting, r.Refused)
			}
			s.start(left...)
			s.ordering(left...)
			if c.nothing {
				s.submit(left[0], report.LevelDurable, s.client.Register("a", "b"))
			}
			s.submit(left[0], report.LevelDurable, s.transfer())
			for _, i := range left {
				s.eventually("the node holds everything", func() bool {
					return s.nodes[i].State().Heights.Stored > done.Head.Height
				})
				opened := s.nodes[i].Store()
				for _, id := range kept {
					if _, err := opened.Transaction(id); err != nil {
						t.Errorf("node %d: a durable transaction: %v", i, err)
					}
				}
				for _, change := range done.Changes {
					block, err := opened.Block(change.Height)
					if err != nil || block.MembershipChange() == nil ||
						block.MembershipChange().Kind != change.Kind {
						t.Errorf(
							"node %d: the mark of %s in block %d: %+v, %v",
							i,
							change.Name,
							change.Height,
							block,
							err,
						)
					}
				}
			}
			if len(c.absent) > 0 {
				s.start(c.absent...)
				s.ordering(s.all()...)
				s.same()
			}
		})
	}
}

// copied replaces a home that was never started with a copy of it.
func (s *shard) copied(i int) {
	s.t.Helper()
	dir := s.homes[i].Dir
	copied := filepath.Join(s.t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		s.t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(copied, dir); err != nil {
		s.t.Fatal(err)
	}
}

// A recovery that is not needed or not possible changes nothing and says why.
func TestRecoveryIsRefused(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.same()
	options := node.RecoveryOptions{
		Homes: s.homes,
		Store: func(*home.Home) store.Options { return s.store },
	}
	if _, err := node.PlanRecovery(options); !errors.Is(err, store.ErrLocked) {
		t.Errorf("while nodes run: %v", err)
	}
	for i := range s.nodes {
		s.stop(i)
	}
	operator := node.NewOperator(ledgertest.Key("operator"))
	refused := func(what, want string, r *node.Recovery) {
		t.Helper()
		if _, err := r.Do(operator); !errors.Is(err, node.ErrRecovery) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	refused("all remember", "not needed", s.plan(node.RecoveryOptions{}, 0, 1, 2))
	refused("a majority remembers", "not needed", s.plan(node.RecoveryOptions{}, 0, 2))
	refused(
		"nothing is said of the others",
		"nothing is said of node-0, node-2",
		s.plan(node.RecoveryOptions{}, 1),
	)
	refused(
		"no majority",
		"2 are needed",
		s.plan(node.RecoveryOptions{Absent: []string{"node-0", "node-2"}}, 1),
	)
	refused(
		"named twice",
		"more than once",
		s.plan(node.RecoveryOptions{Lost: []string{"node-1", "node-0", "node-2"}}, 1),
	)
	refused("a stranger", "no member node-9",
		s.plan(node.RecoveryOptions{Lost: []string{"node-0", "node-2", "node-9"}}, 1))
	s.lose(func(h *home.Home) string { return h.Data() }, 0)
	refused("one forgot", "not needed", s.plan(node.RecoveryOptions{}, 0, 1, 2))

	s.alone(1, 2, true)
	s.alone(2, 3, true)
	r := s.plan(node.RecoveryOptions{}, 0, 1, 2)
	refused("two durable chains", "hold different blocks", r)
	s.lose(func(h *home.Home) string { return h.Data() }, 1)
	r = s.plan(node.RecoveryOptions{}, 0, 1, 2)
	if _, err := r.Do(operator); err != nil || r.ConfirmationWord() != "node-2" {
		t.Errorf("from %s: %v", r.ConfirmationWord(), err)
	}
}

// The homes differ: some are elsewhere, have blocks of their own, or the recovery was interrupted.
func TestRecoveryOfOddHomes(t *testing.T) {
	t.Parallel()
	operator := node.NewOperator(ledgertest.Key("operator"))
	// Three nodes of a third generation. Two of them lost their data.
	lost := func(t *testing.T) (*shard, ledger.Hash) {
		s := newShard(t, 3, nil)
		var kept ledger.Hash
		for life := range 3 {
			s.start(s.all()...)
			s.ordering(s.all()...)
			if life == 0 {
				s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
			}
			kept = s.submit(0, report.LevelDurable, s.transfer())[0].ID
			s.same()
			for i := range s.nodes {
				s.stop(i)
			}
		}
		s.lose(func(h *home.Home) string { return h.Data() }, 0, 2)
		return s, kept
	}
	goOn := func(s *shard, kept ledger.Hash, which ...int) {
		s.t.Helper()
		s.start(which...)
		s.ordering(which...)
		s.submit(which[0], report.LevelDurable, s.transfer())
		for _, i := range which {
			s.eventually("the node holds everything", func() bool {
				_, err := s.nodes[i].Store().Transaction(kept)
				return err == nil
			})
		}
	}
	recover := func(s *shard, options node.RecoveryOptions, which ...int) {
		s.t.Helper()
		r := s.plan(options, which...)
		if _, err := r.Do(operator); err != nil {
			s.t.Fatal(err, r.Waiting)
		}
	}
	t.Run("on other machines", func(t *testing.T) {
		t.Parallel()
		s, kept := lost(t)
		disk, err := s.homes[0].Forget("its data is gone")
		if err != nil {
			t.Fatal(err)
		}
		recover(s, node.RecoveryOptions{
			Disks: map[string]ledger.DiskID{"node-0": ledger.DiskID(disk.ID)},
			Lost:  []string{"node-2"},
		}, 1)
		s.gone[2] = true
		goOn(s, kept, 0, 1)
	})
	t.Run("the furthest home forgot its promises", func(t *testing.T) {
		t.Parallel()
		s, kept := lost(t)
		s.lose(func(h *home.Home) string { return h.Generation() }, 1)
		recover(s, node.RecoveryOptions{}, 0, 1, 2)
		goOn(s, kept, 0, 1, 2)
	})
	t.Run("cut off before the homes agree", func(t *testing.T) {
		t.Parallel()
		for _, cut := range []int{0, 1, 2, 3} { // how many homes have it
			t.Run("", func(t *testing.T) {
				t.Parallel()
				s, kept := lost(t)
				states := make([][]byte, 3)
				for i := range states {
					var err error
					if states[i], err = os.ReadFile(s.homes[i].Generation()); err != nil {
						t.Fatal(err)
					}
				}
				recover(s, node.RecoveryOptions{}, 0, 1, 2)
				for i := cut; i < 3; i++ {
					if err := os.WriteFile(s.homes[i].Generation(), states[i], 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if r := s.plan(node.RecoveryOptions{}, 0, 1, 2); !r.Forms {
					if _, err := r.Do(operator); err != nil {
						t.Fatal(err)
					}
				}
				goOn(s, kept, 0, 1, 2)
			})
		}
	})
	t.Run("another chain, not durable", func(t *testing.T) {
		t.Parallel()
		s, kept := lost(t)
		// node-2 has older blocks of its own.
		older := t.TempDir()
		if err := os.CopyFS(older, os.DirFS(s.homes[1].Data())); err != nil {
			t.Fatal(err)
		}
		s.alone(1, 4, true)
		if err := os.CopyFS(s.homes[2].Data(), os.DirFS(older)); err != nil {
			t.Fatal(err)
		}
		s.alone(2, 2, false)
		r := s.plan(node.RecoveryOptions{}, 0, 1, 2)
		if i := slices.IndexFunc(r.Homes, func(h node.RecoveryHome) bool {
			return h.Forked
		}); i != 2 ||
			r.ConfirmationWord() != "node-1" {
			t.Fatalf("home %d is forked, from %s", i, r.ConfirmationWord())
		}
		if _, err := r.Do(operator); err != nil {
			t.Fatal(err)
		}
		goOn(s, kept, 0, 1, 2)
		if aside, err := filepath.Glob(s.homes[2].Data() + ".rolled-back-*"); err != nil ||
			len(aside) != 1 {
			t.Errorf("set aside: %v, %v", aside, err)
		}
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		s, kept := lost(t)
		recover(s, node.RecoveryOptions{}, 0, 1, 2)
		goOn(s, kept, 0, 1, 2)
		s.same()
		for i := range s.nodes {
			s.stop(i)
		}
		s.lose(func(h *home.Home) string { return h.Generation() }, 0, 1)
		recover(s, node.RecoveryOptions{}, 0, 1, 2)
		goOn(s, kept, 0, 1, 2)
	})
}
