package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// engineChange names the engine by which the members order, and the place of that change. The
// engine of the members' settings, with which a chain begins, is not in the state.
type engineChange struct {
	// index counts the changes of the engine from 0.
	index uint32
	name  string
	changePlace
	mark mark
}

// engineAt returns the engine that the chain names after the block at a height, and the place of
// that change. Both are empty if it names none.
func (g *membershipState) engineAt(height ledger.Height) (ledger.EngineChoice, changePlace) {
	for at := len(g.engines) - 1; at >= 0; at-- {
		if each := g.engines[at]; each.height <= height {
			return ledger.EngineChoice{Name: each.name, Height: each.height}, each.changePlace
		}
	}
	return ledger.EngineChoice{}, changePlace{}
}

// Engine returns the engine that the chain names. It copies nothing.
func (s *State) Engine() ledger.EngineChoice { return s.EngineAt(newest) }

// EngineAt returns the engine that the chain names after the block at a height. It copies nothing.
func (s *State) EngineAt(height ledger.Height) ledger.EngineChoice {
	choice, _ := s.group.engineAt(height)
	return choice
}

func (g *membershipState) mayChangeEngine() ledger.Code {
	if len(g.engines) >= ledger.MaxEngineChanges {
		return ledger.TooManyEngines
	}
	return ledger.Applied
}

// changeEngine makes a change that mayChangeEngine allowed.
func (s *State) changeEngine(name string) {
	s.group.engines = append(s.group.engines, &engineChange{
		index: uint32(len(s.group.engines)), name: name, changePlace: s.group.last,
		mark: mark{touched: true},
	})
}

// finishEngines collects the change of the engine, if there is one. A block has at most one.
func (s *State) finishEngines(changes *Changes) {
	if count := len(s.group.engines); count > 0 && s.group.engines[count-1].mark.touched {
		last := s.group.engines[count-1]
		s.settle(changes, last.mark, last.appendEntry)
		last.mark = mark{}
	}
}

// appendEntry appends the entry: the name and the place.
func (e *engineChange) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(binary.BigEndian.AppendUint32(append(to, kindEngine), e.index), 0)
	keyLength = len(to) - start
	return e.changePlace.append(codec.AppendString(to, e.name)), keyLength
}

// restoreEngine puts the entry of a change of the engine into the group. It reports whether there
// was one already.
func (g *membershipState) restoreEngine(key []byte, r *reader) (of entry, again bool, err error) {
	if len(key) != 1+4+1 {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	restored := &engineChange{index: binary.BigEndian.Uint32(key[1:]),
		name:        r.String("bytes of an engine's name", ledger.MaxEngineName),
		changePlace: r.changePlace()}
	if r.Err == nil && (restored.index >= ledger.MaxEngineChanges || restored.number == 0 ||
		ledger.ValidateEngineName(restored.name) != nil) {
		r.Fail("an engine that no change names")
	}
	if restored.number > g.last.number {
		g.last = restored.changePlace
	}
	place, found := slices.BinarySearchFunc(g.engines, restored.index,
		func(each *engineChange, index uint32) int { return cmp.Compare(each.index, index) })
	if found {
		g.engines[place] = restored
	} else {
		g.engines = slices.Insert(g.engines, place, restored)
	}
	return restored, found, nil
}
