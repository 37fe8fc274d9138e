package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// letterKind tells what members say to each other.
type letterKind uint8

const (
	letterFrame   letterKind = iota // a frame of an engine, with the run that it is for: an outgoing or an event without a letter
	letterSynod                     // a message of the synod that decides generations
	letterStand                     // where the sender stands
	letterAsk                       // the receiver is asked for the blocks after a height
	letterBlocks                    // blocks, in order
	letterEnter                     // the receiver is asked to have an incarnation's entrance ordered
	letterWant                      // the receiver is asked for the content of a round that a generation's tail may hold
	letterContent                   // that content
)

// letter is what travels on a link between members, frames apart. Only the fields of its kind are set. It is never changed once sent.
type letter struct {
	kind   letterKind
	synod  generation.Message
	stand  stand
	height order.Round
	blocks []*block
	enter  change
	// content is the hash of a round's content, and height its round.
	content [32]byte
}

// stand is where a server stands: how many blocks it holds, and the group in which it works, nil if it does not.
type stand struct {
	height  order.Round
	working *group
}

// run is the run in which the server works, 0 if it does not.
func (s stand) run() run {
	if s.working == nil {
		return 0
	}
	return s.working.run
}

// outgoing is a letter, or where that is nil a frame of a run, and its receivers by their chain-wide identities.
type outgoing struct {
	to     []order.ServerID
	letter *letter
	run    run
	frame  []byte
}

// describeLetter names a letter, or the frame of a run, in a trace.
func (s *simulation) describeLetter(l *letter, r run, frame []byte) string {
	if l == nil {
		return fmt.Sprintf("run %v, %s", r, s.describe(frame))
	}
	switch l.kind {
	case letterSynod:
		return "synod: " + describeSynod(&l.synod)
	case letterStand:
		return fmt.Sprintf("word that it stands at %d, working in %v", l.stand.height, l.stand.run())
	case letterAsk:
		return fmt.Sprintf("a question for what comes after block %d", l.height)
	case letterBlocks:
		return fmt.Sprintf("%d blocks up to %d", len(l.blocks), l.blocks[len(l.blocks)-1].round)
	case letterWant:
		return fmt.Sprintf("a question for the content of round %d", l.height)
	case letterContent:
		return fmt.Sprintf("the content of round %d", l.blocks[0].round)
	default:
		return fmt.Sprintf("a wish of %d to enter", l.enter.server)
	}
}
