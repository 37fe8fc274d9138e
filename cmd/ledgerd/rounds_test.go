package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
)

// What a node recorded is shown on lines, kept in a file, and shown again from it.
func TestRounds(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	recorder := s.cluster.Node(0).Rounds()
	if result := s.run("rounds --last 5 %n"); result.status != exitDone ||
		!strings.Contains(result.out, "nothing is recorded") {
		t.Error(result)
	}
	if result := s.run("rounds --for 1ms %n"); !strings.Contains(result.out, "nothing passed") {
		t.Error(result)
	}
	recorder.Begin(3<<16+1, 5, []order.ServerID{0, 1, 2})
	defer recorder.Watch()()
	for _, e := range []rounds.Event{
		{Kind: rounds.RunBegun, Servers: []order.ServerID{0, 1}},
		{Kind: rounds.Mode, Epoch: 2, Round: 7, Reliable: true},
		{Kind: rounds.Broadcast, Epoch: 2, Round: 7, Bytes: 1},
		{Kind: rounds.Received, Frame: "BCAST", Epoch: 1, Round: 6, From: 2, Origin: 1, Bytes: 62},
		{Kind: rounds.Sent, Frame: "FAIL", To: 1, Target: 2, Bytes: 24},
		{Kind: rounds.Waits, Epoch: 2, Round: 7, Servers: []order.ServerID{1, 2}, Decided: true},
		{Kind: rounds.Waits, Epoch: 2, Round: 7},
		{Kind: rounds.Waits, Epoch: 2, Round: 8, Servers: []order.ServerID{0, 1}},
		{Kind: rounds.Tracks, Epoch: 2, Round: 7, Reliable: true, Origin: 2,
			Servers: []order.ServerID{1}},
		{Kind: rounds.Delivered, Epoch: 1, Round: 6, Bytes: 9, Servers: []order.ServerID{0, 1}},
		{Kind: rounds.Removed, Epoch: 1, Round: 6, Servers: []order.ServerID{2}},
		{Kind: rounds.Sealed, Epoch: 1, Round: 6, Height: 12, Time: 1_700_000_000_000},
		{Kind: rounds.Suspected, Origin: 2}, {Kind: rounds.Trusted, Origin: 2},
		{Kind: rounds.Lost, Origin: 2}, {Kind: rounds.RunEnded},
	} {
		recorder.Note(&e)
	}
	shown := s.run("rounds --last 100 %n")
	for _, want := range []string{
		"generation 3, eon 1: from round 5, ", "a run begins: ", "[[2,7]]", "reliable rounds",
		"own message, 1 byte", "[1,6]", "from member 2: BCAST of member 1, 62 bytes",
		"to member 1: FAIL of member 2 by ", ", 24 bytes", "waits for votes of member 1, member 2",
		"waits for nobody", "round has not begun",
		"the message of member 2 can be at member 1",
		", member 1, 9 bytes", "left the group: member 2", "block 12, 2023-11-14 22:13:20Z",
		"suspects member 2", "trusts again member 2", "member 2 is lost to this run",
		"the run is over",
	} {
		if !strings.Contains(shown.out, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() || shown.status != exitDone {
		t.Fatal(shown)
	}
	if kept := s.run("rounds --last 100 %n --out %d/rounds.json"); kept.status != exitDone ||
		!strings.Contains(kept.out, "16 events in ") {
		t.Fatal(kept)
	}
	if again := s.run("rounds %d/rounds.json"); again.out != shown.out {
		t.Errorf("from the file: %+v, want %+v", again, shown)
	}
	asked, read := s.run("rounds --json --last 100 %n"), s.run("rounds --json %d/rounds.json")
	if asked.out != read.out || !strings.Contains(asked.out, `"kind":"ROUND_EVENT_KIND_TRACKS"`) ||
		!strings.Contains(asked.out, `"begun_ms":`) {
		t.Errorf("%+v, from the file %+v", asked, read)
	}
	bad := filepath.Join(s.folder, "bad.json")
	for text, want := range map[string]string{
		`{"format": 1, "colour": 3}`: "colour", `{"format": 9}`: "format 9", "{": "bad.json",
	} {
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if result := s.run("rounds %d/bad.json"); result.status != exitFailure ||
			!strings.Contains(result.errs, want) {
			t.Errorf("%s: %+v", text, result)
		}
	}
	for line, want := range map[string]string{
		"rounds --last -1": "--last", "rounds --last 40000": "32768", "rounds --for 11s": "10s",
		"rounds --follow --last 3": "no end", "rounds x.json --last 3": "leave out",
		"rounds %d/none.json": "none.json",
	} {
		if result := s.run(line); result.status != exitUsage ||
			!strings.Contains(result.errs, want) {
			t.Errorf("%s: %+v", line, result)
		}
	}
}

// TestFollowRounds: events are shown as they come.
func TestFollowRounds(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	recorder := s.cluster.Node(0).Rounds()
	recorder.Begin(1<<16, 1, []order.ServerID{0})
	done, ended := make(chan struct{}), make(chan struct{})
	often := time.NewTicker(20 * time.Millisecond)
	defer often.Stop()
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-often.C:
				recorder.Note(&rounds.Event{Kind: rounds.Delivered, Epoch: 1, Round: 8})
			}
		}
	}()
	for line, want := range map[string]string{
		"rounds --follow %n":        "[1,8]",
		"rounds --follow --json %n": `"ROUND_EVENT_KIND_DELIVERED"`,
	} {
		if result := s.longer(line, want); result.status != exitDone ||
			!strings.Contains(result.out, want) {
			t.Errorf("%s: %+v", line, result)
		}
	}
	close(done)
	<-ended
}
