package node

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/shard"
	"github.com/ledgerd/ledgerd/trains"
)

// TestSettingsTellPrompt: members that disagree on prompt delivery announce other settings, and
// without it they announce what older programs do.
func TestSettingsTellPrompt(t *testing.T) {
	t.Parallel()
	config := home.Default().Ordering
	if got, want := settings(config), "allconcur+, eventual"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	config.Prompt = true
	if got, want := settings(config), "allconcur+, eventual, prompt"; got != want {
		t.Errorf("with prompt: %q, want %q", got, want)
	}
}

// TestSettingsTellTrains: members that disagree on the number of trains announce other settings, if
// their engine has trains at all.
func TestSettingsTellTrains(t *testing.T) {
	t.Parallel()
	config := home.Initial(trains.EngineName).Ordering
	if got, want := settings(config), "trains, eventual, 4 trains"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	config.Trains = 8
	if got, want := settings(config), "trains, eventual, 8 trains"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	config.Engine, config.Trains = engine.Default, engine.TrainsDefault
	if got, want := settings(config), "allconcur+, eventual"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Once the chain names the engine, members differ in what is left: not in the usual number.
	for its, want := range map[string]bool{"allconcur+, eventual": true,
		"trains, eventual, 4 trains": true, "trains, eventual, 8 trains": false} {
		if agree("allconcur, eventual", its, true) != want {
			t.Errorf("%q agrees: %t", its, !want)
		}
	}
}

// TestSettingsTellSizes: members that disagree on the size of messages announce other settings,
// whatever the chain names. With the usual size they announce what older programs do.
func TestSettingsTellSizes(t *testing.T) {
	t.Parallel()
	config := home.Default().Ordering
	usual := settings(config)
	config.BatchBytesMax = 1 << 20
	other := settings(config)
	if want := usual + ", messages of up to 1048576 bytes"; other != want {
		t.Errorf("%q, want %q", other, want)
	}
	for _, named := range []bool{false, true} {
		if agree(usual, other, named) || !agree(other, other, named) {
			t.Errorf("named: %t: %q and %q agree, or the same do not", named, usual, other)
		}
	}
}

// TestSizeIsRefused: a shard whose engine bounds its groups does not grow beyond that, and the
// refusal says what to do.
func TestSizeIsRefused(t *testing.T) {
	t.Parallel()
	for _, each := range []struct {
		engine  string
		members int
		says    string
	}{
		{engine.Default, ledger.MaxMembers, ""}, {trains.EngineName, trains.ServersMax, ""},
		{trains.EngineName, trains.ServersMax + 1,
			"trains takes up to 64 members, not 65: change the engine first"},
		{"none", 1, "unknown engine"},
	} {
		refusal := refusesSize(each.engine, each.members)
		if (refusal == nil) != (each.says == "") || refusal != nil &&
			(refusal.Code != report.RefusedMalformed ||
				!strings.Contains(refusal.Reason, each.says)) {
			t.Errorf("%s of %d: %+v", each.engine, each.members, refusal)
		}
	}
}

// TestMeetings: a round with input from other shards is over, and its ring at rest, before the next
// one. A ring rests three rotations after the last payload. A leader's round is over by itself.
func TestMeetings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine string
		trains int
		want   uint64
	}{
		{trains.EngineName, 0, 16}, {trains.EngineName, 3, 12}, {trains.EngineName, 64, 256},
		{engine.Default, 4, mempool.MeetingDefault}, {dare.EngineName, 4, 2},
	} {
		made, err := engineNamed(c.engine)
		if err != nil {
			t.Fatal(err)
		}
		if got := meetingOf(made, boundOf(made, c.trains)); got != c.want {
			t.Errorf("%s, %d trains: meetings every %d rounds, want %d", c.engine, c.trains, got,
				c.want)
		}
	}
}

// A refusal names nodes that take writes: not one that orders, and whose disk is full, too.
func TestWritersAreNotFull(t *testing.T) {
	t.Parallel()
	for _, each := range []struct {
		said shard.Announcement
		want bool
	}{
		{shard.Announcement{Mode: shard.Ordering}, true},
		{shard.Announcement{Mode: shard.Ordering, Full: true}, false},
		{shard.Announcement{Mode: shard.Following}, false},
	} {
		if got := takesWrites(&each.said); got != each.want {
			t.Errorf("%v, full: %v: takes writes: %v", each.said.Mode, each.said.Full, got)
		}
	}
}
