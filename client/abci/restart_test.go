package abci

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
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
