package certification

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// heldPerMember bounds the statements of one member that wait for others or for their block.
const heldPerMember = 128

// collector holds verified statements, by member and height. It decides nothing about which block
// is right.
type collector struct {
	said map[ledger.MemberIndex][]ledger.Statement // ordered by height, one of each height
}

func newCollector() *collector {
	return &collector{said: make(map[ledger.MemberIndex][]ledger.Statement)}
}

// add holds a statement. If the member has signed another block of that height, add keeps the first
// statement, and returns both as evidence. The oldest statements of a member make way for newer
// ones.
func (c *collector) add(s ledger.Statement) *ledger.Evidence {
	held := c.said[s.Member]
	at, found := slices.BinarySearchFunc(held, s.Height, byHeight)
	if found {
		return ledger.Contradiction(ledger.Certify(held[at:at+1]),
			ledger.Certify([]ledger.Statement{s}))
	}
	held = slices.Insert(held, at, s)
	if len(held) > heldPerMember {
		held = held[1:]
	}
	c.said[s.Member] = held
	return nil
}

// has reports whether this very statement is held.
func (c *collector) has(s ledger.Statement) bool {
	held := c.said[s.Member]
	at, found := slices.BinarySearchFunc(held, s.Height, byHeight)
	return found && held[at] == s
}

// about returns the statements of one height, ordered by member.
func (c *collector) about(height ledger.Height) []ledger.Statement {
	var statements []ledger.Statement
	for _, held := range c.said {
		if at, found := slices.BinarySearchFunc(held, height, byHeight); found {
			statements = append(statements, held[at])
		}
	}
	slices.SortFunc(statements, func(a, b ledger.Statement) int {
		return cmp.Compare(a.Member, b.Member)
	})
	return statements
}

// heights returns the heights from one on of which statements are held, ascending.
func (c *collector) heights(from ledger.Height) []ledger.Height {
	var heights []ledger.Height
	for _, held := range c.said {
		at, _ := slices.BinarySearchFunc(held, from, byHeight)
		for _, s := range held[at:] {
			heights = append(heights, s.Height)
		}
	}
	slices.Sort(heights)
	return slices.Compact(heights)
}

// forget drops the statements of one height.
func (c *collector) forget(height ledger.Height) {
	for member, held := range c.said {
		if at, found := slices.BinarySearchFunc(held, height, byHeight); found {
			c.said[member] = slices.Delete(held, at, at+1)
		}
	}
}

func byHeight(s ledger.Statement, height ledger.Height) int { return cmp.Compare(s.Height, height) }
