package book

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// Position is a place in a shard's chain, and how far the streams between the shards are there.
type Position struct {
	Place store.Place
	// Carried is the number of the last entry of the parent's stream before the place.
	Carried uint64
	// Streamed are the numbers of the last entries of the streams to the child shards before the
	// place, in the order of the Children of the tree as it is at the place.
	Streamed []uint64
	// Shards is the number of shards of the book at the place, and Rehung how often the tree has
	// changed before it.
	Shards, Rehung int
	// Time is the time of block Place.Height.
	Time ledger.Milliseconds
}

// Question asks for a position in a shard's durable chain. The shard answers once its chain is so
// far.
type Question struct {
	Shard ledger.ShardID
	// Exact asks for a place with exactly Carried entries of the parent's stream (Store.PlaceWith).
	// Without it, the place is the end of block Height, or of the last durable block if Latest is
	// set.
	Exact   bool
	Carried uint64
	// Height is the block that the place is to be near to. If Time is set, that is the last block
	// that is not later than Time.
	Height ledger.Height
	Time   ledger.Milliseconds
	Latest bool
	// Streamed are the entries of the streams to the child shards that the chain must have at
	// least, in the order of the Children of the cut's tree.
	Streamed []uint64
	// Shards is the number of shards of the cut's tree, and Rehung how often that has changed.
	Shards, Rehung int
}

// Cut finds a consistent cut of a book: one place in the chain of each shard, so that each chain
// has exactly those entries of its parent's stream that are before the parent's place. It asks for
// positions, and the caller brings the answers:
//
//	for cut := book.NewCut(tree, height); ; {
//		questions := cut.Ask()
//		if len(questions) == 0 {
//			return cut.Positions()
//		}
//		err := cut.Answer(answers)     // in the order of the questions, which may be asked together
//	}
//
// A cut exists for each place in the root's chain, and each transaction is before the places of all
// shards that it concerns or of none (docs/design/cuts.md has the proof). An addition of a shard is
// such a transaction, which concerns all, and so is a change of the tree. So all places know the
// same shards and the same tree, and the cut has a place for each of these shards and no other one.
type Cut struct {
	tree   *ledger.ShardTree // once the root's place is chosen, as it is there
	height *ledger.Height
	// notAfter, unless it is 0, is the time after which no block counts.
	notAfter ledger.Milliseconds
	// levels are the shards by their distance from the root.
	levels [][]ledger.ShardID
	// down says that the places are being chosen, from the root on. Before, the cut finds how far
	// the chains are, from the leaves on.
	down  bool
	level int
	found []Position
}

// NewCut begins to find the cut for the end of a block of the root's chain. Each other place is
// near the time of that block. With nil, the cut has everything that is durable at the nodes that
// are asked, when they are asked first. A book of one shard has no tree, nil.
func NewCut(tree *ledger.ShardTree, height *ledger.Height) *Cut {
	c := &Cut{height: height, down: height != nil, levels: [][]ledger.ShardID{{0}},
		found: make([]Position, 1)}
	if tree == nil {
		return c
	}
	c.plant(tree)
	if !c.down {
		c.level = len(c.levels) - 1
	}
	return c
}

// NewCutNotAfter begins to find the cut for a time, which is not 0. The root's place is the end of
// the last durable block that is not later, and each other place is near such a block.
func NewCutNotAfter(tree *ledger.ShardTree, time ledger.Milliseconds) *Cut {
	c := NewCut(tree, new(ledger.Height))
	c.height, c.notAfter = nil, time
	return c
}

// plant makes the cut one of the shards of a tree.
func (c *Cut) plant(tree *ledger.ShardTree) {
	c.tree = tree
	found := make([]Position, tree.Shards())
	copy(found, c.found)
	c.found = found
	c.levels = [][]ledger.ShardID{{tree.Root()}}
	for next := tree.Children(tree.Root()); len(next) > 0; {
		c.levels = append(c.levels, next)
		var below []ledger.ShardID
		for _, shard := range next {
			below = append(below, tree.Children(shard)...)
		}
		next = below
	}
}

func (c *Cut) children(shard ledger.ShardID) []ledger.ShardID {
	if c.tree == nil {
		return nil
	}
	return c.tree.Children(shard)
}

// Ask returns the next questions, or none if the cut is found.
func (c *Cut) Ask() []Question {
	if c.level == len(c.levels) {
		return nil
	}
	questions, shards, rehung := make([]Question, 0, len(c.levels[c.level])), 1, 0
	if c.tree != nil {
		shards, rehung = c.tree.Shards(), len(c.tree.Rehung())
	}
	for _, shard := range c.levels[c.level] {
		question := Question{Shard: shard, Shards: shards, Rehung: rehung}
		switch {
		case !c.down:
			question.Latest = true
			for _, child := range c.children(shard) {
				question.Streamed = append(question.Streamed, c.found[child].Carried)
			}
		case c.level == 0 && c.height != nil:
			question.Height = *c.height
		case c.level == 0:
			question.Time = c.notAfter
		default:
			question.Exact, question.Carried = true, c.before(shard)
			question.Height = c.found[shard].Place.Height
			if question.Time = c.notAfter; c.height != nil {
				question.Time = c.found[c.levels[0][0]].Time
			}
		}
		questions = append(questions, question)
	}
	return questions
}

// before returns how many entries of the stream to a shard are before its parent's place.
func (c *Cut) before(shard ledger.ShardID) uint64 {
	parent, _ := c.tree.Parent(shard)
	return c.found[parent].Streamed[slices.Index(c.tree.Children(parent), shard)]
}

// Answer takes the answers to the last questions. It returns an error if they cannot be right, or
// store.ErrNotYet if the root knows more shards than the cut's tree has.
func (c *Cut) Answer(answers []Position) error {
	shards := c.levels[c.level]
	if len(answers) != len(shards) {
		return fmt.Errorf("%d answers to %d questions", len(answers), len(shards))
	}
	if err := c.shards(shards, answers); err != nil {
		return err
	}
	for i, shard := range shards {
		answer := answers[i]
		children := len(c.children(shard))
		if c.tree != nil {
			children = len(c.tree.Before(answer.Shards, answer.Rehung).Children(shard))
		}
		if len(answer.Streamed) != children {
			return fmt.Errorf("the place of shard %d is with %d streams to child shards, and it "+
				"has %d of them", shard, len(answer.Streamed), children)
		}
		before := uint64(0) // for the root
		if c.level > 0 && c.down {
			before = c.before(shard)
		}
		if c.down && answer.Carried != before {
			return fmt.Errorf("the place of shard %d is after %d entries of its parent's stream, "+
				"and the parent's after %d", shard, answer.Carried, before)
		}
		c.found[shard] = answer
	}
	switch {
	case c.down:
		c.level++
	case c.level > 0:
		c.level--
	default:
		c.down, c.level = true, 1 // the root is where it said
	}
	return nil
}

// shards checks how many shards of the book the answers know, and which tree. From the root's place
// on, the cut is one of the shards and of the tree that this knows.
func (c *Cut) shards(shards []ledger.ShardID, answers []Position) error {
	if c.tree == nil {
		return nil
	}
	began := c.tree.GenesisShards()
	for i, shard := range shards {
		known, rehung := answers[i].Shards, answers[i].Rehung
		most := len(c.tree.Rehung())
		switch {
		case known < began || known > ledger.MaxShards || int(shard) >= known:
			return fmt.Errorf("at the place of shard %d the book has %d shards, and it began with "+
				"%d", shard, known, began)
		case known > c.tree.Shards() && (c.level == 0 || !c.down):
			return fmt.Errorf("%w: the book has %d shards at the place of shard %d, and %d are "+
				"known here", store.ErrNotYet, known, shard, c.tree.Shards())
		case rehung > most && (c.level == 0 || !c.down):
			return fmt.Errorf("%w: the tree has changed %d times at the place of shard %d, and %d "+
				"times as it is known here", store.ErrNotYet, rehung, shard, most)
		case c.level > 0 && c.down && known != c.tree.Shards():
			return fmt.Errorf("the book has %d shards at the place of shard %d, and %d at that of "+
				"the root", known, shard, c.tree.Shards())
		case !c.tree.Was(known, rehung) || c.level > 0 && c.down && rehung != most:
			return fmt.Errorf("the tree of %d shards has changed %d times at the place of shard "+
				"%d, and the cut's %d times", known, rehung, shard, most)
		case c.level == 0:
			c.plant(c.tree.Before(known, rehung))
		}
	}
	return nil
}

// Positions returns the position of each shard, by number. The cut must be found.
func (c *Cut) Positions() []Position { return c.found }

// ErrNoCut reports that places are not a consistent cut of a book.
var ErrNoCut = errors.New("book: these places are no cut")

// CheckCut returns ErrNoCut unless positions are a cut, by the numbers of entries that they have.
// They are of all shards that the book had at the cut, by number. Whether the numbers are those at
// the places, each shard has to find out (PlaceIn). CheckCut returns store.ErrNotYet if they are of
// more shards than the tree has. A book of one shard has no tree, nil.
func CheckCut(tree *ledger.ShardTree, positions []Position) error {
	began, shards := 1, 1
	if tree != nil {
		began, shards = tree.GenesisShards(), tree.Shards()
	}
	if len(positions) < began || tree == nil && len(positions) > 1 ||
		len(positions) > ledger.MaxShards {
		return fmt.Errorf("%w: %d places, and the book has %d shards", ErrNoCut, len(positions),
			shards)
	}
	if len(positions) > shards {
		return fmt.Errorf("%w: it has %d shards, and the cut %d", store.ErrNotYet, shards,
			len(positions))
	}
	if tree != nil {
		rehung := rehungIn(tree, positions)
		if !tree.Was(len(positions), rehung) {
			return fmt.Errorf("%w: its tree has changed %d times with %d shards", ErrNoCut, rehung,
				len(positions))
		}
		tree = tree.Before(len(positions), rehung)
	}
	positions = slices.Clone(positions)
	for i := range positions {
		positions[i].Shards = len(positions)
		if tree != nil {
			positions[i].Rehung = len(tree.Rehung())
		}
	}
	cut := NewCut(tree, new(ledger.Height))
	for cut.level < len(cut.levels) {
		var answers []Position
		for _, shard := range cut.levels[cut.level] {
			answers = append(answers, positions[shard])
		}
		if err := cut.Answer(answers); err != nil {
			return fmt.Errorf("%w: %w", ErrNoCut, err)
		}
	}
	return nil
}

// rehungIn returns how often the tree has changed in a cut. A change begins the stream to a shard
// with its own number, so the streams from above tell.
func rehungIn(tree *ledger.ShardTree, positions []Position) int {
	last := uint64(0)
	for i := range positions {
		last = max(last, ledger.StreamOf(positions[i].Carried))
	}
	rehung := tree.Rehung()
	for len(rehung) > 0 && rehung[len(rehung)-1].Number > last {
		rehung = rehung[:len(rehung)-1]
	}
	return len(rehung)
}

// PlaceIn returns the place of a store's chain in a cut. It returns ErrNoCut if the positions are
// no cut (CheckCut), or if that of this chain does not have the entries of the streams that it
// says.
// It returns store.ErrNotYet if the chain up to the height durable does not have the place.
func PlaceIn(ctx context.Context, from *store.Store, cut []Position,
	durable ledger.Height) (store.Place, error) {
	tree := from.ShardTree()
	if err := CheckCut(tree, cut); err != nil {
		return store.Place{}, err
	}
	if int(from.Shard()) >= len(cut) {
		return store.Place{}, fmt.Errorf("%w: shard %d was added after the cut, which has %d "+
			"places", ErrNoCut, from.Shard(), len(cut))
	}
	said := &cut[from.Shard()]
	if said.Place.Height > durable || said.Place.Last() > durable {
		return store.Place{}, fmt.Errorf("%w: block %d is the last durable one, and the "+
			"place is in or after block %d", store.ErrNotYet, durable, said.Place.Last())
	}
	if err := from.CheckPlace(said.Place); errors.Is(err, store.ErrNotFound) {
		return store.Place{}, fmt.Errorf("%w: shard %d: %w", ErrNoCut, from.Shard(), err)
	} else if err != nil {
		return store.Place{}, err
	}
	has, err := from.HasCarried(ctx, said.Place, said.Carried)
	if err == nil && !has {
		err = fmt.Errorf("%w: the place of shard %d is not after %d entries of its parent's stream",
			ErrNoCut, from.Shard(), said.Carried)
	}
	if err != nil {
		return store.Place{}, err
	}
	shards, err := from.ShardsAt(said.Place)
	if err == nil && shards != len(cut) {
		err = fmt.Errorf("%w: the book has %d shards at the place of shard %d, and the cut has %d "+
			"places", ErrNoCut, shards, from.Shard(), len(cut))
	}
	if err != nil {
		return store.Place{}, err
	}
	if tree == nil {
		return said.Place, nil
	}
	there, err := from.TreeAt(said.Place)
	if err == nil && len(there.Rehung()) != rehungIn(tree, cut) {
		err = fmt.Errorf("%w: the tree has changed %d times at the place of shard %d, and %d "+
			"times in the cut", ErrNoCut, len(there.Rehung()), from.Shard(), rehungIn(tree, cut))
	}
	if err != nil {
		return store.Place{}, err
	}
	for i, streamed := range said.Streamed {
		child := there.Children(from.Shard())[i]
		found, err := from.StreamedAt(child, said.Place)
		if err == nil && found != streamed {
			err = fmt.Errorf("%w: the place of shard %d is after %d entries of the stream to "+
				"shard %d, not %d", ErrNoCut, from.Shard(), found, child, streamed)
		}
		if err != nil {
			return store.Place{}, err
		}
	}
	return said.Place, nil
}

// Find answers a question from a store, as far as the chain up to the height durable. It returns
// store.ErrNotYet if the chain is not so far.
func Find(ctx context.Context, from *store.Store, question *Question,
	durable ledger.Height) (Position, error) {
	var found Position
	height := question.Height
	if question.Latest {
		height = durable
	}
	var err error
	if question.Time != 0 {
		if height, err = lastNotAfter(from, question.Time, durable); err != nil {
			return Position{}, err
		}
	}
	if height > durable {
		return Position{}, fmt.Errorf("%w: block %d is the last durable one, and not %d",
			store.ErrNotYet, durable, height)
	}
	found.Place, found.Carried = store.Place{Height: height}, question.Carried
	if question.Exact {
		found.Place, err = from.PlaceWith(ctx, question.Carried, height, durable)
	} else {
		found.Carried, err = from.CarriedAt(ctx, height)
	}
	if err != nil {
		return Position{}, err
	}
	if found.Shards, err = from.ShardsAt(found.Place); err != nil {
		return Position{}, err
	}
	if tree := from.ShardTree(); tree != nil {
		if found.Rehung, err = from.RehungAt(found.Place); err != nil {
			return Position{}, err
		}
		if err := streamedAt(from, tree, &found, question); err != nil {
			return Position{}, err
		}
	}
	header, _, err := from.Header(found.Place.Height)
	found.Time = header.Time
	return found, err
}

// streamedAt sets how far the streams to the children are at a place. It returns store.ErrNotYet if
// one of those that the question names has fewer entries than asked for.
func streamedAt(from *store.Store, tree *ledger.ShardTree, found *Position,
	question *Question) error {
	for _, child := range tree.Before(found.Shards, found.Rehung).Children(from.Shard()) {
		streamed, err := from.StreamedAt(child, found.Place)
		if err != nil {
			return err
		}
		found.Streamed = append(found.Streamed, streamed)
	}
	if len(question.Streamed) == 0 {
		return nil
	}
	if !tree.Was(question.Shards, question.Rehung) {
		return fmt.Errorf("%w: shard %d does not know a tree of %d shards that has changed %d "+
			"times", store.ErrNotYet, from.Shard(), question.Shards, question.Rehung)
	}
	children := tree.Before(question.Shards, question.Rehung).Children(from.Shard())
	if len(question.Streamed) > len(children) {
		return fmt.Errorf("%w: shard %d has %d child shards, and not %d", store.ErrNotYet,
			from.Shard(), len(children), len(question.Streamed))
	}
	for i, least := range question.Streamed {
		if least == 0 {
			continue
		}
		streamed, err := from.StreamedAt(children[i], found.Place)
		if err != nil {
			return err
		}
		if streamed < least {
			return fmt.Errorf("%w: it has the entries of the stream to shard %d up to %d, and not "+
				"%d", store.ErrNotYet, children[i], streamed, least)
		}
	}
	return nil
}

// lastNotAfter returns the last block up to a height whose time is not after this time, or 0.
func lastNotAfter(from *store.Store, time ledger.Milliseconds,
	upTo ledger.Height) (ledger.Height, error) {
	low, high := ledger.Height(0), upTo+1 // block low is not after the time, block high is
	for low+1 < high {
		middle := low + (high-low)/2
		header, _, err := from.Header(middle)
		if err != nil {
			return 0, err
		}
		if header.Time > time {
			high = middle
		} else {
			low = middle
		}
	}
	return low, nil
}

// LostPlace is the place of a shard that is lost, for a question: before its first block, with the
// entries of the stream that the cut needs. Nothing is read there. All shards below it are lost,
// too: they have nothing from it, but the numbers of their streams still say which changes of the
// tree the cut has.
func LostPlace(tree *ledger.ShardTree, question *Question) Position {
	tree = tree.Before(question.Shards, question.Rehung)
	children := tree.Children(question.Shard)
	place := Position{Carried: question.Carried, Shards: question.Shards, Rehung: question.Rehung,
		Streamed: make([]uint64, len(children))}
	for i, child := range children {
		place.Streamed[i] = ledger.StreamBase(tree.Began(child))
	}
	return place
}
