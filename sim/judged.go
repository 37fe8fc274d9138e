package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// judged is the state of the oracles of a shard's life.
type judged struct {
	// lines are the generations that began. all lists them in the order in which they began. newest
	// is the newest one.
	lines  map[generation.Generation]*line
	all    []*line
	newest *line
	// runs counts the runs that delivered something.
	runs int
	// durable are the blocks that any server knew to be durable, by height.
	durable []*block
	// ordered are the blocks that an engine A-delivered and that no generation has given up.
	ordered []*orderedBlock
	// vows are the states of servers when they last promised a generation. proposals are the values
	// that were accepted, with the vows that they were based on.
	vows      map[vowKey]*vow
	proposals map[generation.Generation][]proposal
	// decided are all decisions that a disk held, whether their generations began or not.
	decided map[generation.Generation]*generation.Decision
}

// line is the sequence of rounds that a generation A-delivers.
type line struct {
	generation generation.Generation
	base, tip  *block
	first      order.Round
	// members are the members that the decision names: they promised, and their disks counted.
	members []order.ServerID
	rounds  []*lineRound
	runs    []*lineRun
}

// lineRun is a run of a generation. remaining are its members that are not removed.
type lineRun struct {
	run       generation.Run
	first     order.Round
	base      *block
	members   []order.ServerID
	shard     generation.Membership
	engine    string
	remaining []order.ServerID
	delivers  bool
	// removals are the rounds with which servers left the group, as each server says, with prompt
	// delivery.
	removals []*content
}

// lineRound is an A-delivered round, and the server that delivered it first.
type lineRound struct {
	run   generation.Run
	by    order.ServerID
	round *content
}

// orderedBlock is a block that an engine A-delivered.
type orderedBlock struct {
	block *block
	run   *lineRun
	by    order.ServerID
}

type vowKey struct {
	server     order.ServerID
	generation generation.Generation
}

// vow is the state of a server when it promised a generation: the runs in which its process took
// part, and the contents of its disk.
type vow struct {
	ballot   generation.Ballot
	runs     []generation.Run
	held     []*block
	id       generation.DiskID
	original bool
	// activated is the newest run in which the disk took part.
	activated generation.Run
}

// proposal is a value that a server accepted first, and the vows of its members by then. A later
// ballot may propose the value again, after they fetched more.
type proposal struct {
	value *generation.Decision
	vows  map[order.ServerID]*vow
}

// took reports whether the process that promised took part in a run.
func (v *vow) took(r generation.Run) bool { return slices.Contains(v.runs, r) }

// holds reports whether the disk of the server that promised had a block of a run, and the server
// took part in the run's generation or a later one. Only then does it know the generation of the
// block.
func (v *vow) holds(b *block, r generation.Run) bool {
	return v.activated.Generation() >= r.Generation() && b.height < uint64(len(v.held)) &&
		v.held[b.height] == b
}

func newJudged() judged {
	return judged{
		lines:     make(map[generation.Generation]*line),
		vows:      make(map[vowKey]*vow),
		proposals: make(map[generation.Generation][]proposal),
		decided:   make(map[generation.Generation]*generation.Decision),
	}
}

// run returns a run of a line, nil if it did not begin.
func (l *line) run(r generation.Run) *lineRun {
	for _, known := range l.runs {
		if known.run == r {
			return known
		}
	}
	return nil
}

// broke records a violation.
func (s *simulation) broke(property order.Property, evidence ...string) {
	s.broken = append(s.broken, &order.Violation{Property: property, Evidence: evidence})
}
