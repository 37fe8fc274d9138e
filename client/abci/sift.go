package abci

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// carried is a transaction of the application in a block, with the organisation whose record it is.
type carried struct {
	owner ledger.OrganisationName
	value []byte
}

// why says why a transaction of a block is left out. As the index of a place it is below zero.
type why int

const (
	// notAccepted: the application did not accept it after those before it.
	notAccepted why = -1 - iota
	// noRoom: the application would get more at once than it may.
	noRoom
	// notAsked: so much of the organisation was not accepted that the rest was not tried.
	notAsked
)

// leftOut is a transaction that the chain has, and that is not executed.
type leftOut struct {
	transaction []byte
	why         why
}

// siftBounds bound what an application gets in a block, since any organisation may post. All
// adapters of an application need the same.
type siftBounds struct {
	// transactions and bytes bound a block. CometBFT's servers of applications take messages of
	// 100 MiB, and an answer has at most maxParts parts.
	transactions, bytes int
	// refused bounds, for each organisation, the bytes of the questions that the application
	// answered with no because of that organisation alone.
	refused int
}

var standardBounds = siftBounds{transactions: 1 << 14, bytes: 64 << 20, refused: 1 << 30}

// sifting leaves out of a block what the application does not accept in one. CometBFT would decide
// another block. Here the order is decided already, so the block loses as little as possible: a
// transaction stays if the application accepts it after those that stay before it. The answers are
// deterministic, as ABCI demands of ProcessProposal, so all replicas leave out the same.
type sifting struct {
	accepts func(transactions [][]byte) (bool, error)
	bounds  siftBounds
	kept    [][]byte
	size    int // of kept
	left    []leftOut
	refused map[ledger.OrganisationName]int
}

// sift returns what stays in a block, and what is left out of it.
func sift(all []carried, bounds siftBounds, accepts func([][]byte) (bool, error)) (kept [][]byte,
	left []leftOut, err error) {
	s := &sifting{accepts: accepts, bounds: bounds,
		refused: make(map[ledger.OrganisationName]int)}
	size := 0
	for i, each := range all {
		if size += len(each.value); i < bounds.transactions && size <= bounds.bytes {
			continue
		}
		s.leave(all[i:], noRoom)
		all = all[:i]
		break
	}
	accepted, err := accepts(values(all))
	switch {
	case err != nil:
		return nil, nil, err
	case accepted:
		s.kept = values(all)
	case len(all) > 0:
		err = s.part(all, true)
	}
	return s.kept, s.left, err
}

// part adds to the block what the application accepts of a part. Of a half that it accepts whole it
// asks once, so each transaction that is left out costs a few questions.
func (s *sifting) part(part []carried, rejected bool) error {
	asked := slices.Clone(part)
	asked = slices.DeleteFunc(asked, func(each carried) bool {
		spent := s.refused[each.owner] > s.bounds.refused
		if spent {
			s.leave([]carried{each}, notAsked)
		}
		return spent
	})
	if len(asked) == 0 {
		return nil
	}
	if !rejected || len(asked) < len(part) {
		tried := slices.Concat(s.kept, values(asked))
		accepted, err := s.accepts(tried)
		if err != nil {
			return err
		}
		size := s.size
		for _, each := range asked {
			size += len(each.value)
		}
		if accepted {
			s.kept, s.size = tried, size
			return nil
		}
		owner := asked[0].owner
		if !slices.ContainsFunc(asked, func(e carried) bool { return e.owner != owner }) {
			s.refused[owner] += size + questionBytes
		}
	}
	if len(asked) == 1 {
		s.leave(asked, notAccepted)
		return nil
	}
	for _, half := range [][]carried{asked[:len(asked)/2], asked[len(asked)/2:]} {
		if err := s.part(half, false); err != nil {
			return err
		}
	}
	return nil
}

// questionBytes are those of a question without its transactions.
const questionBytes = 1 << 10

func (s *sifting) leave(part []carried, why why) {
	for _, each := range part {
		s.left = append(s.left, leftOut{each.value, why})
	}
}

func values(part []carried) [][]byte {
	all := make([][]byte, len(part))
	for i := range part {
		all[i] = part[i].value
	}
	return all
}
