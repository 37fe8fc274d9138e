package abci

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// holding returns a fault that holds a kind of request up until the test says so, and dies then if
// that is asked for.
func holding(kind call, then fault) (func(protowire.Number, bool) fault, chan struct{}) {
	goOn := make(chan struct{})
	return func(each protowire.Number, after bool) fault {
		if each != kind.request || after {
			return fine
		}
		select {
		case <-goOn:
			return fine
		default:
		}
		<-goOn
		return then
	}, goOn
}

// hurry is a configuration in which each wait is short.
func hurry(c *Config) {
	c.Timing.Slow, c.Timing.Check = Duration(20*time.Millisecond), Duration(100*time.Millisecond)
}

// An application that takes long for a call about a block is waited for. The adapter says for what,
// in notices and in status, and answers everything else meanwhile.
func TestSlow(t *testing.T) {
	t.Parallel()
	for _, kind := range []call{callInit, callProcess, callFinal, callCommit} {
		chain, p := newGrowing([]string{"a"}), newProgram(t)
		fault, goOn := holding(kind, fine)
		p.fault = fault
		a := startAdapter(t, p, chain, t.TempDir(), hurry)
		said := a.await(kind.name+" is slow", func(n Notice) bool { return n.Event == "waiting" })
		if said.Call != kind.name || said.Seconds <= 0 || kind.request != callInit.request &&
			said.Height != 1 {
			t.Errorf("%s: %+v", kind.name, said)
		}
		status := a.status()
		if status.Feed.State != feedWaiting || status.Feed.Call != kind.name ||
			time.Since(status.Feed.Since) <= 0 || !status.Sync.Behind {
			t.Errorf("%s: status has %+v", kind.name, status.Feed)
		}
		// Commit keeps checks out. They fail in time.
		err := a.call("check_tx", `tx="c"`, nil)
		if late := kind.request == callCommit.request; late != (err != nil) {
			t.Errorf("%s: check_tx: %v", kind.name, err)
		}
		a.await(kind.name+" is still slow", func(n Notice) bool { return n.Event == "waiting" })
		close(goOn)
		said = a.await(kind.name+" is answered", func(n Notice) bool {
			return n.Event == "answered"
		})
		if said.Call != kind.name || said.Seconds <= 0 {
			t.Errorf("%s: %+v", kind.name, said)
		}
		a.reaches(2)
		if feed := a.status().Feed; feed.State != feedFollowing || feed.Call != "" {
			t.Errorf("%s: status has %+v", kind.name, feed)
		}
		if texts, height, wrong := p.executed(); texts != "a" || height != 2 || wrong != "" {
			t.Errorf("%s: %q at %d; %s", kind.name, texts, height, wrong)
		}
	}
}

// An application that never answers a call about a block ends the adapter after give_up, and one
// that is left in the middle of a block when the adapter is stopped is reported.
func TestNeverAnswers(t *testing.T) {
	t.Parallel()
	for _, kind := range []call{callInit, callProcess, callFinal, callCommit} {
		chain, p := newGrowing([]string{"a"}), newProgram(t)
		fault, goOn := holding(kind, die)
		p.fault = fault
		a := startAdapter(t, p, chain, t.TempDir(), func(c *Config) {
			c.Timing.GiveUp = Duration(100 * time.Millisecond)
		})
		err := a.end()
		close(goOn)
		if !errors.Is(err, errGaveUp) || !strings.Contains(err.Error(), kind.name) ||
			!strings.Contains(err.Error(), "Restart the application") {
			t.Errorf("%s: %v", kind.name, err)
		}
	}
	chain, p := newGrowing([]string{"a"}), newProgram(t)
	fault, goOn := holding(callFinal, die)
	p.fault = fault
	a := startAdapter(t, p, chain, t.TempDir(), func(c *Config) {
		c.Timing.Slow, c.Timing.Grace = Duration(time.Millisecond), Duration(10*time.Millisecond)
	})
	a.await("waiting", func(n Notice) bool { // on a busy machine it also waits for earlier calls
		return n.Event == "waiting" && n.Call == callFinal.name
	})
	a.stop()
	if err := a.end(); err == nil || !strings.Contains(err.Error(), "in the middle of block 1") {
		t.Errorf("stopped: %v", err)
	}
	close(goOn)
}

// An application that never prepares a proposal holds up what is posted here, and not the chain.
func TestNeverPrepares(t *testing.T) {
	t.Parallel()
	chain, p := newGrowing([]string{"a"}), newProgram(t)
	fault, goOn := holding(callPrepare, breakOff)
	p.fault = fault
	a := startAdapter(t, p, chain, t.TempDir(), hurry)
	a.reaches(2)
	if err := a.call("broadcast_tx_sync", `tx="c"`, nil); err != nil {
		t.Fatal(err)
	}
	chain.put("b")
	a.reaches(3)
	close(goOn)
	a.reaches(4)
	if texts, height, wrong := p.executed(); texts != "a b c" || height != 4 || wrong != "" {
		t.Errorf("%q at %d; %s", texts, height, wrong)
	}
}

// An application that comes back with an earlier height executes what comes after that again. The
// adapter says so. With another hash on the way it is refused.
func TestEarlierHeight(t *testing.T) {
	t.Parallel()
	chain, p, folder := newGrowing([]string{"a"}, []string{"b"}), newProgram(t), t.TempDir()
	a := startAdapter(t, p, chain, folder, nil)
	a.reaches(3)
	for back := range 3 {
		p.die(back)
		if err := a.call("broadcast_tx_sync", "tx=0x"+strings.Repeat("0", 2*back+2),
			nil); err != nil {
			t.Fatal(err)
		}
		said := a.await("begin", func(n Notice) bool { return n.Event == "begin" })
		if said.Height != int64(back) || said.Was != int64(3+back) {
			t.Errorf("back to %d: %+v", back, said)
		}
		a.reaches(int64(4 + back))
	}
	texts, height, wrong := p.executed()
	if !strings.HasPrefix(texts, "a b ") || height != 6 || wrong != "" {
		t.Errorf("%q at %d; %s", texts, height, wrong)
	}
	a.stop()
	if err := a.end(); err != nil && !strings.Contains(err.Error(), "canceled") {
		t.Fatal(err)
	}
	p.die(2)
	p.mutex.Lock()
	p.states[2] = []string{"x"}
	p.mutex.Unlock()
	a = startAdapter(t, p, chain, folder, nil)
	if err := a.end(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(),
		"at height 6 the application's hash") {
		t.Errorf("another state: %v", err)
	}
}

// An application that goes on when its connection breaks, and executes a block on top of itself, is
// refused at once, and so is one that has another hash than its answer about the block said.
func TestTwiceOnTop(t *testing.T) {
	t.Parallel()
	for name, onTop := range map[string]func(p *program){
		"executes again": func(p *program) { p.states[0] = append(p.states[0], "a") },
		"other hash":     func(p *program) { p.states = append(p.states, []string{"y"}) },
	} {
		p, once := newProgram(t), true
		p.fault = func(kind protowire.Number, after bool) fault {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			if kind != callCommit.request || after || !once {
				return fine
			}
			once = false
			onTop(p)
			return breakOff
		}
		a := startAdapter(t, p, newGrowing(), t.TempDir(), nil)
		if err := a.end(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(),
			"at height 1 the application's hash") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file that cannot be written stops nothing. The adapter says so once, and writes it again as
// soon as that works.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	chain, p := newGrowing([]string{"a"}), newProgram(t)
	folder := t.TempDir()
	fault, goOn := holding(callInit, fine)
	p.fault = fault
	a := startAdapter(t, p, chain, folder, nil)
	// A folder in the place of the file stands for the disk.
	inTheWay := filepath.Join(folder, keptName+".new")
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	a.await("unkept", func(n Notice) bool { return n.Event == "unkept" && n.Error != "" })
	a.reaches(2)
	if feed := a.status().Feed; feed.NotKept == "" || feed.State != feedFollowing {
		t.Errorf("status has %+v", feed)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	a.stop()
	a.end()
	kept, err := readKept(folder)
	if err != nil || kept == nil || kept.Height != 2 {
		t.Errorf("%+v, %v", kept, err)
	}
	for len(a.notices) > 0 {
		if n := <-a.notices; n.Event == "unkept" {
			t.Errorf("told again: %+v", n)
		}
	}
}
