package order

import "strings"

// Property names what an oracle judges.
type Property string

// The properties, with their sources. The uniform ones also bind processes that fail later.
const (
	// Integrity: A-delivered at most once by a process, only at a destination, only if A-broadcast
	// or A-multicast before.
	Integrity Property = "integrity"
	// TotalOrder: two processes that both A-deliver two messages do so in the same order [Poke19,
	// section 2.2.1].
	TotalOrder Property = "total order"
	// PrefixOrder: of two messages for both their groups, one is A-delivered first by both
	// processes or not at all [TRAM, section 2.2].
	PrefixOrder Property = "prefix order"
	// AcyclicOrder: "some process A-delivers m before m'" has no cycle [TRAM, section 2.2].
	AcyclicOrder Property = "acyclic order"
	// SetAgreement: the same round is A-delivered with the same contents at all servers [Poke19,
	// Theorem 6.4.11].
	SetAgreement Property = "set agreement"
	// RoundForm: an A-delivered round is as Delivery promises.
	RoundForm Property = "round form"
	// Validity: what a correct process A-broadcasts it A-delivers; what it A-multicasts all correct
	// destinations A-deliver.
	Validity Property = "validity"
	// Agreement: what a correct process A-delivers, all correct destinations A-deliver.
	Agreement Property = "agreement"
	// UniformAgreement: what any process A-delivers, also one that fails later, all correct
	// destinations A-deliver.
	UniformAgreement Property = "uniform agreement"
)

// Violation says that a property is broken, and how one can see it.
type Violation struct {
	Property Property
	// Evidence is what happened, a fact a line, none more than are needed.
	Evidence []string
}

// Error gives the whole violation, as several lines.
func (v *Violation) Error() string {
	var text strings.Builder
	text.WriteString(string(v.Property))
	text.WriteString(" is broken:")
	for _, line := range v.Evidence {
		text.WriteString("\n  ")
		text.WriteString(line)
	}
	return text.String()
}

// Moment says when a history is judged.
type Moment int

const (
	// UnderWay is any moment: safety is judged.
	UnderWay Moment = iota
	// AtRest is when nothing more will happen by itself: liveness is judged too.
	AtRest
)

// oracle judges one property over a history of messages.
type oracle struct {
	judge func(*History) *Violation
	// from is the first moment at which the oracle may be asked.
	from Moment
}

// oracles lists them in the order in which they are asked.
var oracles = []oracle{
	{judgeIntegrity, UnderWay},
	{judgeTotalOrder, UnderWay},
	{judgePrefixOrder, UnderWay},
	{judgeAcyclicOrder, UnderWay},
	{judgeValidity, AtRest},
	{judgeAgreement, AtRest},
	{judgeUniformAgreement, AtRest},
}
