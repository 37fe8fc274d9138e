package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/shard"
)

// letterKind is the kind of a letter between processes.
type letterKind uint8

const (
	// a frame of an engine, with its run: an arrival without a letter
	letterFrame    letterKind = iota
	letterSynod               // a message of the synod
	letterAnnounce            // an announcement of a member about itself
	letterWish                // a member outside of the group asks for something
	letterStored              // the sender's disk holds the chain up to a height
	letterAsk                 // asks the receiver for blocks
	letterBlocks              // the answer to letterAsk
	letterWant                // asks the receiver for the content of a round
	letterContent             // the answer to letterWant
)

// peerMessage is a message between processes, other than a frame. Only the fields of its kind are
// set. It never changes once it is sent.
type peerMessage struct {
	kind         letterKind
	synod        generation.Message
	announcement shard.Announcement
	// sent is when an announcement was sent.
	sent Instant
	wish shard.Wish
	// number identifies a question. The answer repeats it.
	number int
	// height is the height that is stored in run (letterStored), or the last height wanted
	// (letterAsk).
	height uint64
	run    generation.Run
	// recorded are rounds of run that the sender's disk recorded (letterStored).
	recorded []shard.Recorded
	// blocks are the asker's blocks (letterAsk), or the blocks to append (letterBlocks). forked
	// reports that the chains part after common.
	blocks []*block
	forked bool
	common uint64
	// hash names the wanted content. content is that content, nil if the sender does not have it.
	hash    [32]byte
	content *content
}

// describeLetter describes a letter, or the frame of a run, in a trace.
func (s *simulation) describeLetter(l *peerMessage, r generation.Run, frame []byte) string {
	if l == nil {
		return fmt.Sprintf("run %v, %s", run(r), s.describe(frame))
	}
	switch l.kind {
	case letterSynod:
		return "synod: " + describeSynod(&l.synod)
	case letterAnnounce:
		a := &l.announcement
		return fmt.Sprintf("announcement: %v, run %v, decided %d, heights %+v, learner %v",
			a.Mode, run(a.Group.Run), a.Decided, a.Heights, a.Learner)
	case letterWish:
		return fmt.Sprintf("wish %+v", l.wish)
	case letterStored:
		return fmt.Sprintf("stored %d in run %v, recorded %v", l.height, run(l.run), l.recorded)
	case letterAsk:
		return fmt.Sprintf("a question for what comes after block %d",
			l.blocks[len(l.blocks)-1].height)
	case letterBlocks:
		return fmt.Sprintf("%d blocks, forked %v, common %d", len(l.blocks), l.forked, l.common)
	case letterWant:
		return "a question for the content of a round"
	default:
		return fmt.Sprintf("the content of a round: %v", l.content != nil)
	}
}

// run formats a generation.Run.
type run generation.Run

// String formats a run as its generation and its eon.
func (r run) String() string {
	return fmt.Sprintf("%d.%d", generation.Run(r).Generation(), generation.Run(r).Eon())
}

// describeSynod describes a message of the synod in a trace.
func describeSynod(m *generation.Message) string {
	kind := [...]string{"?", "prepare", "promise", "accept", "accepted", "decided",
		"refuse"}[min(int(m.Kind), 6)]
	text := fmt.Sprintf("%s for generation %d, ballot %d by %d", kind, m.Generation,
		m.Ballot.Number, m.Ballot.Proposer)
	if m.Kind == generation.KindPromise {
		text += fmt.Sprintf(" (%s)", describeReport(&m.Report))
	}
	if m.Value != nil {
		text += describeDecision(m.Value)
	}
	return text
}

func describeDecision(d *generation.Decision) string {
	return fmt.Sprintf(" (generation %d: base %d of %d, tail of %d, members %v)", d.Generation,
		d.Base.Height, d.Base.Generation, len(d.Tail), d.Members)
}

func describeReport(r *generation.Report) string {
	return fmt.Sprintf("head %d of %d, run %v, restarted %v, perhaps %v, durable %d, %d votes",
		r.Head.Height, r.Head.Generation, run(r.Run), r.Restarted, r.Perhaps, r.Durable,
		len(r.Votes))
}
