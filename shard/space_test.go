package shard

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// A decision has a round that the disk has no room for. The member says so while the round is
// wanted, and goes on once the disk takes it.
func TestRoundWithoutRoomIsSaid(t *testing.T) {
	t.Parallel()
	s := &story{chain: &bookChain{membership: generation.Membership{Members: []order.ServerID{0,
		1, 2}}}}
	disk := Disk{ID: diskOf(0), Original: true}
	var err error
	s.member, err = New(Config{Self: 0, Disk: disk, Chain: s.chain, Timing: DefaultTiming()})
	if err != nil {
		t.Fatal(err)
	}
	decision := &generation.Decision{
		Generation: 1, Members: []order.ServerID{0, 1},
		Disks: []generation.DiskID{diskOf(0), diskOf(1)},
		Tail: []generation.TailRound{{Round: 1, Origins: []order.ServerID{0},
			Content: [32]byte{7}}},
	}
	step := func(inputs ...Input) (wanted bool) {
		for _, input := range inputs {
			s.member.Step(input)
			for _, effect := range s.member.Ready() {
				switch effect.(type) {
				case FetchRound:
					wanted = true
				case Save:
					s.member.Step(Saved{})
				}
			}
		}
		return wanted
	}
	heard := AnnouncementReceived{From: 1, Announcement: Announcement{Mode: Starting,
		Disk: diskOf(1)}}
	step(Linked{Server: 1, Up: true}, heard, SynodReceived{
		From: 1, Message: generation.Message{Kind: generation.KindDecided, Generation: 1,
			Value: decision},
	})
	const reason = "the disk is full"
	step(RoundMissing{ID: [32]byte{7}, Reason: reason})
	if !step(Tick{}) {
		t.Error("the round is not asked for again")
	}
	if view := s.member.View(); view.Mode != Halted || !strings.Contains(view.Why, reason) {
		t.Errorf("without room for a round: %v, %q", view.Mode, view.Why)
	}
	step(RoundHeld{ID: [32]byte{7}}, Tick{})
	if view := s.member.View(); view.Mode == Halted {
		t.Errorf("with room: %v, %q", view.Mode, view.Why)
	}
}
