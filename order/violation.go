package order

import "strings"

// Property is the name of a property that an oracle judges.
type Property string

// The properties and their sources. The uniform properties also bind processes that fail later.
const (
	// Integrity: a process A-delivers a message at most once, only if it is a destination, and only
	// if the message was A-broadcast or A-multicast before.
	Integrity Property = "integrity"
	// TotalOrder: two processes that both A-deliver two messages A-deliver them in the same order
	// [Poke19, section 2.2.1].
	TotalOrder Property = "total order"
	// PrefixOrder: for two messages m and m' that are for the groups of both p and q: if p
	// A-delivers m and q A-delivers m', then p A-delivers m' before m or q A-delivers m before m'
	// [TRAM, section 2.2].
	PrefixOrder Property = "prefix order"
	// AcyclicOrder: the relation "some process A-delivers m before m'" has no cycle [TRAM, section
	// 2.2].
	AcyclicOrder Property = "acyclic order"
	// SetAgreement: all servers A-deliver the same round with the same contents [Poke19, Theorem
	// 6.4.11].
	SetAgreement Property = "set agreement"
	// RoundForm: an A-delivered round has the form that Delivery promises.
	RoundForm Property = "round form"
	// Validity: a correct process A-delivers every message that it A-broadcasts. All correct
	// destinations A-deliver every message that a correct process A-multicasts.
	Validity Property = "validity"
	// Agreement: all correct destinations A-deliver every message that a correct process
	// A-delivers.
	Agreement Property = "agreement"
	// UniformAgreement: all correct destinations A-deliver every message that any process
	// A-delivers, even a process that fails later.
	UniformAgreement Property = "uniform agreement"
)

// Violation reports a broken property, with evidence.
type Violation struct {
	Property Property
	// Evidence lists the facts that show the violation, one a line, and no more than needed.
	Evidence []string
}

// Error returns the whole violation, as several lines.
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

// Moment is the point in a run at which a history is judged.
type Moment int

const (
	// UnderWay is any moment. Only safety is judged.
	UnderWay Moment = iota
	// AtRest is the moment when nothing more will happen without new input. Liveness is judged too.
	AtRest
)

// oracle judges one property over a history of messages.
type oracle struct {
	judge func(*History) *Violation
	// from is the first moment at which the oracle may run.
	from Moment
}

// oracles lists the oracles in the order in which they run.
var oracles = []oracle{
	{judgeIntegrity, UnderWay},
	{judgeTotalOrder, UnderWay},
	{judgePrefixOrder, UnderWay},
	{judgeAcyclicOrder, UnderWay},
	{judgeValidity, AtRest},
	{judgeAgreement, AtRest},
	{judgeUniformAgreement, AtRest},
}
