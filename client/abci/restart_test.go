package abci

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// An application that lost its state while nothing came begins anew with Info, whatever the adapter
// asks first: here it is to prepare what a client posts.
func TestProposalAfterRestart(t *testing.T) {
	t.Parallel()
	chain, p := newGrowing([]string{"a"}, []string{"b"}), newProgram(t)
	a := startAdapter(t, p, chain, t.TempDir(), nil)
	a.reaches(3)
	p.die(0)
	if err := a.call("broadcast_tx_commit", `tx="c"`, nil); err != nil {
		t.Fatal(err)
	}
	if texts, height, wrong := p.executed(); texts != "a b c" || height != 4 || wrong != "" {
		t.Errorf("%q at %d; %s", texts, height, wrong)
	}
}

// No call about a block makes a connection: what is behind it may have begun anew.
func TestOnlyInfoConnects(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	app, err := newApplication(&Config{Application: p.address}, maxMessageBytes,
		newTeller(&Options{Config: &Config{}}))
	if err != nil {
		t.Fatal(err)
	}
	defer app.close()
	for _, kind := range []call{callInit, callPrepare, callProcess, callFinal, callCommit} {
		if err := app.consensus.call(t.Context(), kind, &empty{}, &empty{}); !errors.Is(err,
			ErrApplication) || !strings.Contains(err.Error(), "not connected") {
			t.Errorf("%s: %v", kind.name, err)
		}
	}
	if _, err := app.info(t.Context(), app.consensus); err != nil {
		t.Error(err)
	}
	if _, _, wrong := p.executed(); wrong != "" {
		t.Error(wrong)
	}
}

// An application that restarts while the chain is idle is fed again without a new block.
func TestRestartWhileIdle(t *testing.T) {
	t.Parallel()
	chain, p := newGrowing([]string{"a"}, []string{"b"}), newProgram(t)
	a := startAdapter(t, p, chain, t.TempDir(), nil)
	a.reaches(3)
	p.die(1)
	a.reaches(3)
	if texts, height, wrong := p.executed(); texts != "a b" || height != 3 || wrong != "" {
		t.Errorf("%q at %d; %s", texts, height, wrong)
	}
}

// Whatever dies when, each block is executed once.
func TestDiesAnywhere(t *testing.T) {
	t.Parallel()
	for _, kind := range []call{callInfo, callInit, callProcess, callFinal, callCommit} {
		for _, after := range []bool{false, true} {
			for _, what := range []fault{breakOff, die} {
				p := newProgram(t)
				left := 2
				p.fault = func(each protowire.Number, late bool) fault {
					p.mutex.Lock()
					defer p.mutex.Unlock()
					if each != kind.request || late != after || left == 0 {
						return fine
					}
					left--
					return what
				}
				chain := newGrowing([]string{"a", "bad", "b"}, []string{""}, []string{"c"})
				a := startAdapter(t, p, chain, t.TempDir(), nil)
				a.reaches(4)
				if texts, height, wrong := p.executed(); texts != "a b c" || height != 4 ||
					wrong != "" {
					t.Errorf("%s, after %v, fault %d: %q at %d; %s", kind.name, after, what, texts,
						height, wrong)
				}
				a.stop()
			}
		}
	}
}

// A node that answers, and gets no further blocks, is left for another one.
func TestNodeIsStuck(t *testing.T) {
	t.Parallel()
	chain, p := newGrowing([]string{"a"}, []string{"b"}), newProgram(t)
	chain.stuck = 2
	a := startAdapter(t, p, chain, t.TempDir(), nil)
	a.reaches(2)
	a.reaches(3)
	if texts, _, wrong := p.executed(); texts != "a b" || wrong != "" {
		t.Errorf("%q; %s", texts, wrong)
	}
}

// mishap is something that goes wrong once.
type mishap struct {
	kind  int // of the requests below
	after bool
	skip  int // so many of the kind are answered before
	back  int // the process comes back so many heights earlier; -1: only the connection breaks
}

// Whatever goes wrong, in whatever order, with the application, its connection, the nodes and the
// adapter, each block is executed once, in its place.
func TestMishaps(t *testing.T) {
	t.Parallel()
	kinds := []call{callInfo, callInit, callProcess, callFinal, callCommit, callFlush}
	rapid.Check(t, func(rt *rapid.T) {
		mishaps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) *mishap {
			return &mishap{rapid.IntRange(0, len(kinds)-1).Draw(rt, "kind"),
				rapid.Bool().Draw(rt, "after"), rapid.IntRange(0, 4).Draw(rt, "skip"),
				rapid.IntRange(-1, 3).Draw(rt, "back")}
		}), 0, 6).Draw(rt, "mishaps")
		badReads := rapid.SliceOfN(rapid.IntRange(0, 12), 0, 4).Draw(rt, "reads that fail")
		stops := rapid.SliceOfN(rapid.Int64Range(1, 7), 0, 2).Draw(rt, "stops")
		p, chain := newProgram(t), newGrowing([]string{"a"}, []string{"b", "bad", "c"},
			[]string{""}, []string{"d"}, []string{"e", "f"})
		p.setFault(func(kind protowire.Number, after bool) fault {
			p.mutex.Lock()
			what, back := fine, 0
			for i, each := range mishaps {
				if kinds[each.kind].request != kind || each.after != after {
					continue
				}
				if each.skip--; each.skip < 0 {
					mishaps = slices.Delete(mishaps, i, i+1)
					what, back = breakOff, each.back
					break
				}
			}
			height := max(len(p.states)-1-back, 0)
			p.mutex.Unlock()
			if what != fine && back >= 0 {
				p.die(height)
			}
			return what
		})
		reads := 0
		chain.fails = func(ledger.Height) error {
			if reads++; slices.Contains(badReads, reads) {
				return errors.New("the node was killed")
			}
			return nil
		}
		folder := t.TempDir()
		hasty := func(c *Config) { c.Timing.Grace = Duration(time.Microsecond) }
		a := startAdapter(t, p, chain, folder, hasty)
		for _, each := range stops {
			a.await("some block", func(n Notice) bool {
				return n.Event == "block" && n.Height >= each || n.Height == 6
			})
			a.stop()
			a.end()
			p.hasRead()
			a = startAdapter(t, p, chain, folder, hasty)
		}
		a.await("the end", func(Notice) bool {
			_, height, _ := p.executed()
			return height == 6
		})
		a.stop()
		a.end()
		texts, _, wrong := p.executed()
		if texts != "a b c d e f" || wrong != "" {
			rt.Fatalf("%q; %s", texts, wrong)
		}
	})
}
