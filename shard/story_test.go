package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// TestStories runs the transcripts in testdata/stories: one member, its inputs and its effects.
// After an intended change, rewrite them with -rewrite and read the difference.
//
//	member self=0 of=3 [height=9] [durable=9] [new] [decided=1 disks=(0,1,2)] [gone]
//	hear from=1 [working=(1,0)] [members=(0,1)] [removed=(0)] [base=3] [height=9] [durable=9]
//	     [enters=(0)] [disk=1] [learner] [stalled]       an announcement of another member
//	link server=1 [down] [restarted]
//	wish from=2 kind=enter|admit [ticket=7] [disk=2]
//	chain height=9 [stored=9] [durable=9] [names=(1,5)] [branch=1]  the own chain now
//	ended members=(0,1,2) [enters=(2)] [benched=(1)] [regroup]
//	waits ticks=1 for=(2) [removed=(1)] [outside]        the engine's progress
//	settled | saved | full | fetched [forked common=3] | aside [reason=full] [durable]
//	disk [reason=full] [low]
//	accept from=2 base=1 members=(0,2)                   a proposal for generation 2, to accept
//	leaves server=1 [height=2] [others]                  the last block removed a server
//	tick [count=10]
//
// Save is answered by saved or full, and so on: effects that need an answer wait for one.
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.command(t, d)
		})
	})
}

// bookChain is a chain whose block h has the hash {h, branch}.
type bookChain struct {
	height, stored, durable uint64
	branch                  byte
	empty                   order.Round
	membership              generation.Membership
	changed                 uint64
	former                  []Former
	before                  *generation.Membership // the membership that the last leave changed
	// engines are those that blocks named, by height.
	engines map[uint64]string
}

func hashAt(height uint64, branch byte) [32]byte { return [32]byte{byte(height), branch} }

func (c *bookChain) Tip() Tip {
	round := order.Round(c.height)
	return Tip{Height: c.height, Hash: hashAt(c.height, c.branch), Round: round + c.empty,
		Block: round}
}
func (c *bookChain) Heights() Heights {
	return Heights{c.height, c.stored, c.durable}
}
func (c *bookChain) Hash(height uint64) ([32]byte, error) { return hashAt(height, c.branch), nil }
func (c *bookChain) Former() []Former                     { return c.former }
func (c *bookChain) Engine(height uint64) string {
	for ; height > 0; height-- {
		if name := c.engines[height]; name != "" {
			return name
		}
	}
	return ""
}
func (c *bookChain) Membership() (generation.Membership, uint64) {
	return c.membership, c.changed
}
func (c *bookChain) RoundOf(height uint64) (order.Round, order.Epoch, error) {
	return order.Round(height), 1, nil
}

func (c *bookChain) MembershipAt(height uint64) (generation.Membership, uint64) {
	if height >= c.changed {
		return c.membership, c.changed
	}
	if c.before != nil {
		return *c.before, 0
	}
	before := c.membership
	before.Number--
	before.Disks = nil
	return before, 0
}

type story struct {
	chain  *bookChain
	member *Member
	// prepared is the message with which the member opened its last attempt.
	prepared generation.Message
}

func (s *story) command(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "member" {
		s.begin(t, d)
	} else {
		for _, input := range s.inputs(t, d) {
			s.member.Step(input)
		}
	}
	var text strings.Builder
	for effects := s.member.Ready(); len(effects) > 0; effects = s.member.Ready() {
		for _, e := range effects {
			text.WriteString(s.describe(e))
		}
	}
	view := s.member.View()
	fmt.Fprintf(&text, "%v", view.Mode)
	if view.Learner {
		text.WriteString(", a learner")
	}
	if view.Why != "" {
		fmt.Fprintf(&text, ": %s", view.Why)
	}
	if leavers := s.member.Leavers(); len(leavers) > 0 {
		fmt.Fprintf(&text, "\ntalks to %v, which left", leavers)
	}
	return text.String() + "\n"
}

func (s *story) begin(t *testing.T, d *datadriven.TestData) {
	servers := order.ServerID(integer(t, d, "of", 3))
	height := uint64(integer(t, d, "height", 0))
	s.chain = &bookChain{height: height, stored: height,
		durable: uint64(integer(t, d, "durable", 0))}
	for server := range servers {
		s.chain.membership.Members = append(s.chain.membership.Members, server)
	}
	self := order.ServerID(integer(t, d, "self", 0))
	disk := Disk{ID: diskOf(int(self)), Original: true, Gone: d.HasArg("gone")}
	if d.HasArg("new") {
		disk.ID, disk.Original, disk.New = diskOf(100), false, "the data are gone"
	}
	if decided := integer(t, d, "decided", 0); decided > 0 {
		decision := &generation.Decision{Generation: generation.Generation(decided)}
		for _, server := range s.chain.membership.Members {
			decision.Members = append(decision.Members, server)
			decision.Disks = append(decision.Disks, diskOf(int(server)))
		}
		disk.State = generation.State{Decided: decision, Instance: decision.Generation}
	}
	var err error
	s.member, err = New(Config{Self: self, Disk: disk, Chain: s.chain, Timing: DefaultTiming(),
		Ticket: 7})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *story) inputs(t *testing.T, d *datadriven.TestData) []Input {
	switch d.Cmd {
	case "hear":
		return []Input{s.announcement(t, d)}
	case "link":
		return []Input{Linked{
			Server: order.ServerID(integer(t, d, "server", 1)), Up: !d.HasArg("down"),
			Restarted: d.HasArg("restarted"),
		}}
	case "wish":
		var kind string
		d.ScanArgs(t, "kind", &kind)
		from := integer(t, d, "from", 1)
		wish := Wish{Kind: WishEnter, Number: uint64(integer(t, d, "ticket", 7)),
			Disk: diskOf(integer(t, d, "disk", from))}
		if kind == "admit" {
			wish.Kind, wish.Number = WishAdmit, 0
		}
		return []Input{WishReceived{From: order.ServerID(from), Wish: wish}}
	case "chain":
		return s.grow(t, d)
	case "ended":
		ended := EonEnded{Run: s.member.group.Run, Members: servers(t, d, "members"),
			Regroup: d.HasArg("regroup"),
			Benched: servers(t, d, "benched")}
		for _, server := range servers(t, d, "enters") {
			ended.Entrants = append(ended.Entrants, Entrant{Server: server, Ticket: 7,
				Disk: diskOf(int(server))})
		}
		return []Input{ended}
	case "waits":
		progressed := Progressed{Run: s.member.group.Run, Waiting: integer(t, d, "ticks", 0),
			Outside: d.HasArg("outside"), Relayed: d.HasArg("relayed"), Stuck: d.HasArg("stuck"),
			Awaited: servers(t, d, "for"), Removed: servers(t, d, "removed")}
		return []Input{progressed, Tick{}}
	case "accept":
		return []Input{s.accept(t, d)}
	case "promise":
		return []Input{s.promise(t, d)}
	case "leaves":
		left := order.ServerID(integer(t, d, "server", 0))
		m := &s.chain.membership
		before := *m
		s.chain.before = &before
		m.Members = slices.DeleteFunc(slices.Clone(m.Members), func(server order.ServerID) bool {
			return server == left
		})
		m.Disks = nil
		m.Number, s.chain.changed = m.Number+1, s.chain.height
		s.chain.former = append(s.chain.former, Former{left, s.chain.height})
		return nil
	case "halted":
		return []Input{EngineHalted{Run: s.member.group.Run, Reason: "too many failures"}}
	case "settled":
		return []Input{Settled{}}
	case "saved":
		return []Input{Saved{}}
	case "full":
		return []Input{SaveFailed{Reason: "the disk is full: free some space"}}
	case "fetched":
		return []Input{Fetched{Reached: integer(t, d, "reached", -1), Forked: d.HasArg("forked"),
			Common: uint64(integer(t, d, "common", 0))}}
	case "aside":
		reason := ""
		d.MaybeScanArgs(t, "reason", &reason)
		return []Input{WasSetAside{Reason: reason, Durable: d.HasArg("durable")}}
	case "disk":
		reason := ""
		d.MaybeScanArgs(t, "reason", &reason)
		return []Input{DiskFull{Reason: reason, Low: d.HasArg("low")}}
	case "tick":
		inputs := make([]Input, integer(t, d, "count", 1))
		for i := range inputs {
			inputs[i] = Tick{}
		}
		return inputs
	}
	t.Fatalf("%s: there is no command %s", d.Pos, d.Cmd)
	return nil
}

// accept is the command accept. The proposer's ballot is higher than any before.
func (s *story) accept(t *testing.T, d *datadriven.TestData) Input {
	from := order.ServerID(integer(t, d, "from", 1))
	base := uint64(integer(t, d, "base", 0))
	value := &generation.Decision{
		Generation: 2, Members: servers(t, d, "members"),
		Base: generation.Head{Generation: 1, Height: base, Hash: hashAt(base, 0),
			Round: order.Round(base)},
	}
	for _, server := range value.Members {
		value.Disks = append(value.Disks, diskOf(int(server)))
	}
	return SynodReceived{From: from, Message: generation.Message{
		Kind: generation.KindAccept, Generation: 2, Value: value,
		Ballot: generation.Ballot{Number: 99, Proposer: from, Disk: diskOf(int(from))},
	}}
}

// promise is the command promise: a member answers the last attempt, with this member's chain.
func (s *story) promise(t *testing.T, d *datadriven.TestData) Input {
	from := integer(t, d, "from", 1)
	tip := s.chain.Tip()
	return SynodReceived{From: order.ServerID(from), Message: generation.Message{
		Kind: generation.KindPromise, Generation: s.prepared.Generation, Ballot: s.prepared.Ballot,
		Known: s.prepared.Known,
		Report: generation.Report{
			Head: generation.Head{Generation: 1, Height: tip.Height, Hash: tip.Hash,
				Round: order.Round(tip.Height)},
			Disk: diskOf(integer(t, d, "disk", from)), Original: !d.HasArg("new"),
			Run: generation.NewRun(1, 0), Restarted: d.HasArg("restarted"),
			Perhaps:    d.HasArg("perhaps"),
			Membership: s.chain.membership, Shard: s.chain.membership,
		},
	}}
}

// grow is the command chain.
func (s *story) grow(t *testing.T, d *datadriven.TestData) []Input {
	s.chain.height = uint64(integer(t, d, "height", int(s.chain.height)))
	s.chain.stored = uint64(integer(t, d, "stored", int(s.chain.height)))
	s.chain.durable = uint64(integer(t, d, "durable", int(s.chain.durable)))
	s.chain.branch = byte(integer(t, d, "branch", int(s.chain.branch)))
	if names := servers(t, d, "names"); len(names) == 2 {
		m := &s.chain.membership
		m.Disks = make([]generation.DiskID, len(m.Members))
		m.Disks[names[0]] = diskOf(int(names[1]))
		m.Number, s.chain.changed = m.Number+1, s.chain.height
	}
	return nil
}

func (s *story) announcement(t *testing.T, d *datadriven.TestData) Input {
	from := integer(t, d, "from", 1)
	height := uint64(integer(t, d, "height", 0))
	durable := uint64(integer(t, d, "durable", 0))
	a := Announcement{
		Mode: Starting, Heights: Heights{height, height, durable},
		Tip:  hashAt(height, byte(integer(t, d, "branch", 0))),
		Disk: diskOf(integer(t, d, "disk", from)), Learner: d.HasArg("learner"),
		Stalled: d.HasArg("stalled"),
		Removed: servers(t, d, "removed"), Full: d.HasArg("full"),
		Changes: uint64(integer(t, d, "changes", 0)),
	}
	if run := servers(t, d, "working"); len(run) == 2 {
		base := uint64(integer(t, d, "base", 0))
		a.Mode = Ordering
		a.Group = Group{
			Run:   generation.NewRun(generation.Generation(run[0]), uint16(run[1])),
			First: order.Round(base + 1),
			Base:  base, BaseHash: hashAt(base, 0), Members: servers(t, d, "members"),
		}
		for _, server := range servers(t, d, "enters") {
			a.Group.Entrants = append(a.Group.Entrants, Entrant{
				Server: server, Ticket: s.member.ticket, Disk: s.member.config.Disk.ID,
			})
		}
	}
	return AnnouncementReceived{From: order.ServerID(from), Announcement: a}
}

// describe formats an effect. It leaves out Changed and announcements, which repeat the view.
func (s *story) describe(e Effect) string {
	switch e := e.(type) {
	case Announce, Changed:
		return ""
	case Save:
		return fmt.Sprintf("save: run %v, promised %d\n", runText(e.State.Activated),
			e.State.Promised.Number)
	case SendSynod:
		if e.Message.Kind == generation.KindPrepare {
			s.prepared = e.Message
		}
		return fmt.Sprintf("synod message of kind %d to %d\n", e.Message.Kind, e.To)
	case Start:
		return fmt.Sprintf("start run %v of %v after block %d\n", runText(e.Group.Run),
			e.Group.Members, e.Group.Base)
	case Fetch:
		var from []order.ServerID
		for _, source := range e.From {
			from = append(from, source.Server)
		}
		return fmt.Sprintf("fetch from %v, limit %d\n", from, e.Limit)
	case Mark:
		return fmt.Sprintf("mark server %d, bench %v, regroup %v\n", e.Entrant.Server, e.Bench,
			e.Regroup)
	case SendWish:
		kind := [...]string{"?", "enter", "regroup", "admit"}[e.Wish.Kind]
		return fmt.Sprintf("ask %d: %s %d\n", e.To, kind, e.Wish.Number)
	case Admit:
		return fmt.Sprintf("admit disk %d of server %d\n", e.Disk[0], e.Server)
	case End:
		return fmt.Sprintf("end: %v\n", e.Err)
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T%+v\n", e, e), "shard."))
}

func runText(r generation.Run) string { return fmt.Sprintf("%d.%d", r.Generation(), r.Eon()) }

// diskOf returns the disk with a number. Server s has disk number s.
func diskOf(number int) generation.DiskID { return generation.DiskID{byte(number), 1} }

func integer(t *testing.T, d *datadriven.TestData, name string, otherwise int) int {
	t.Helper()
	value := otherwise
	d.MaybeScanArgs(t, name, &value)
	return value
}

// servers reads a list as in members=(0,1).
func servers(t *testing.T, d *datadriven.TestData, name string) []order.ServerID {
	t.Helper()
	for _, argument := range d.CmdArgs {
		if argument.Key != name {
			continue
		}
		var list []order.ServerID
		for _, value := range argument.Vals {
			var server uint32
			if _, err := fmt.Sscan(value, &server); err != nil {
				t.Fatalf("%s: %s: %v", d.Pos, value, err)
			}
			list = append(list, order.ServerID(server))
		}
		return list
	}
	return nil
}
