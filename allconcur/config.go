package allconcur

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// The engines of this package, as Config.Engine names them.
const (
	// EngineAllConcur is AllConcur: every round is reliable [Poke19, chapter 5].
	EngineAllConcur = "allconcur"
	// EngineAllConcurPlus is AllConcur+: rounds are unreliable, and cheap, until a server fails
	// [Poke19, chapter 6].
	EngineAllConcurPlus = "allconcur+"
)

const (
	// MaxPayloadDefault is the bound on one message's payload if Config.MaxPayload is 0, in bytes.
	MaxPayloadDefault = 4 << 20
	// MaxPayloadLimit is the largest value of Config.MaxPayload, in bytes.
	MaxPayloadLimit = 1 << 30
)

// ErrConfig says that a Config is not valid; match it with errors.Is.
var ErrConfig = errors.New("allconcur: wrong configuration")

// Config describes one server's engine. All servers of a group must have equal values except for
// Self.
type Config struct {
	// Engine is EngineAllConcur or EngineAllConcurPlus.
	Engine string
	// Self is this server, below Servers.
	Self order.ServerID
	// Servers is n, the size of the initial group; its members are 0 to n-1.
	Servers int
	// Reliable is the reliable digraph G_R over the initial group. It must be strongly connected.
	// Its connectivity bounds the failures tolerated, f = digraph.Tolerated(Reliable). It is shared
	// and never changed.
	Reliable *digraph.Digraph
	// Generation distinguishes this run of the group from others. Frames of another generation are
	// ignored.
	Generation uint64
	// FirstRound is the number of the first round; 0 means 1.
	FirstRound order.Round
	// Detector is the class of failure detector that the engine may rely on. The zero value is
	// DetectorEventual.
	Detector Detector
	// Shard is N, the number of members of the shard, at least Servers. The group may be a part of
	// the shard, but at least a majority. Majorities are those of the shard. 0 means Servers.
	Shard int
	// Change reports whether an A-delivered round contains a change of the group. The engine calls
	// it once for each A-delivered round, in order, and Complete also calls it for complete rounds.
	// It must be a function of the round alone, so that all servers get the same answer, and must
	// not call the engine. After a change
	// in round r, round r+2 is the transitional one, the last of this engine [Poke19, section
	// 6.3.3.2]. A further change in r+1 or r+2 belongs to the same switch. nil means never.
	Change func(order.Delivery) bool
	// NonUniform makes AllConcur+ A-deliver an unreliable round as soon as the next one is
	// complete, as in [Poke19, section 6.2.3]. Then what a server A-delivers just before it fails
	// may differ from what the others A-deliver. AllConcur is always uniform. NonUniform requires
	// DetectorPerfect.
	NonUniform bool
	// Prompt makes AllConcur+ A-deliver the messages of a small unreliable round as soon as it is
	// complete and every member is known to hold them (prompt.go). It requires DetectorEventual.
	Prompt bool
	// MaxPayload bounds one message's payload, in bytes; 0 means MaxPayloadDefault.
	MaxPayload int
	// AssertPropositions makes the engine panic on an input that contradicts a proposition of
	// [Poke19, section 6.2.4.2], instead of dropping the frame. The propositions hold under P in a
	// group of correct servers, so a search or a simulation of such a group sets it. Production
	// does not.
	AssertPropositions bool
	// Fault plants a bug, to prove that a checker finds it. Production leaves it FaultNone.
	Fault Fault
}

// Detector is the class of failure detectors that a group assumes.
type Detector uint8

const (
	// DetectorEventual is ◇P, eventually perfect: suspicions may be false, and a false one is
	// withdrawn sooner or later. No mistake of the detector makes two servers A-deliver different
	// rounds; see the package comment.
	DetectorEventual Detector = iota
	// DetectorPerfect is P: only servers that failed are suspected. A server that notices a mistake
	// halts.
	DetectorPerfect
	// DetectorEventualPaper is ◇P as in [Poke19, sections 5.2.1.2 and 6.3.3.1]. It exists to
	// measure it and to show where it forks, and is not for production.
	DetectorEventualPaper
	detectorEnd
)

// String returns the detector's name as used on a command line.
func (d Detector) String() string {
	switch d {
	case DetectorEventual:
		return "eventual"
	case DetectorPerfect:
		return "perfect"
	case DetectorEventualPaper:
		return "eventual-paper"
	default:
		return fmt.Sprintf("detector(%d)", uint8(d))
	}
}

// Fault is a bug that is planted on purpose. Judges of engines (this package's tests, the
// simulator) use it to prove that they find bugs.
type Fault uint8

const (
	// FaultNone is the correct engine.
	FaultNone Fault = iota
	// FaultDroppedForward takes messages and does not relay them.
	FaultDroppedForward
	// FaultEarlyDelivery A-delivers an unreliable round when it is complete, without waiting for
	// the next one.
	FaultEarlyDelivery
	// FaultPrunedTooSoon gives up a message as lost at the first notification of its sender's
	// failure.
	FaultPrunedTooSoon
	// FaultNoForwardBackward A-delivers a reliable round as soon as tracking is complete, without a
	// vote.
	FaultNoForwardBackward
	// FaultToleratedNotMajority waits for f+1 votes, including this server's, instead of a majority
	// or the fast threshold.
	FaultToleratedNotMajority
	// FaultSetsIgnored counts a vote regardless of its set.
	FaultSetsIgnored
	// FaultStaleEon takes the frames of earlier runs for its own.
	FaultStaleEon
	// FaultRevokeWrongSequence makes a revocation invalidate later notifications of the same edge
	// too.
	FaultRevokeWrongSequence
	// FaultSkipAfterDecided skips a round whose set is decided.
	FaultSkipAfterDecided
	// FaultOutvotedSkipperGoesOn lets a server that skipped a round go on although a majority
	// decided a set of that round.
	FaultOutvotedSkipperGoesOn
	// FaultRevocationNotRecalled revokes a notification although the detector suspects the server
	// again.
	FaultRevocationNotRecalled
	// FaultPrematureNotRelayed keeps a premature reliable message and does not relay it.
	FaultPrematureNotRelayed
	// FaultRemovedOwnerKept keeps the notifications of removed servers.
	FaultRemovedOwnerKept
	// FaultPromptUnheld delivers a complete round promptly without asking who holds its messages.
	FaultPromptUnheld
	// FaultPromptOneMissing delivers promptly though one member may not hold the messages.
	FaultPromptOneMissing
	// FaultRerunForgets reruns a round without the messages of others that it vouched for.
	FaultRerunForgets
	// FaultInterruptedForgotten forgets what it vouched for in a round if the round before it is
	// rerun first.
	FaultInterruptedForgotten
	// FaultCompleteForgotten forgets, in a rerun, that the round was complete.
	FaultCompleteForgotten
	// FaultPromptRerunEpoch gives a promptly delivered message the epoch of the state that it came
	// in.
	FaultPromptRerunEpoch
	faultEnd
)

// PromptFaults lists the bugs of prompt delivery, which need Config.Prompt.
func PromptFaults() []Fault {
	return []Fault{FaultPromptUnheld, FaultPromptOneMissing, FaultRerunForgets,
		FaultInterruptedForgotten, FaultCompleteForgotten, FaultPromptRerunEpoch}
}

// String returns the fault's name as used on a command line.
func (f Fault) String() string {
	switch f {
	case FaultNone:
		return "none"
	case FaultDroppedForward:
		return "dropped-forward"
	case FaultEarlyDelivery:
		return "early-delivery"
	case FaultPrunedTooSoon:
		return "pruned-too-soon"
	case FaultNoForwardBackward:
		return "no-forward-backward"
	case FaultToleratedNotMajority:
		return "tolerated-not-majority"
	case FaultSetsIgnored:
		return "sets-ignored"
	case FaultStaleEon:
		return "stale-eon"
	case FaultRevokeWrongSequence:
		return "revoke-wrong-sequence"
	case FaultSkipAfterDecided:
		return "skip-after-decided"
	case FaultOutvotedSkipperGoesOn:
		return "outvoted-skipper-goes-on"
	case FaultRevocationNotRecalled:
		return "revocation-not-recalled"
	case FaultPrematureNotRelayed:
		return "premature-not-relayed"
	case FaultRemovedOwnerKept:
		return "removed-owner-kept"
	case FaultPromptUnheld:
		return "prompt-unheld"
	case FaultPromptOneMissing:
		return "prompt-one-missing"
	case FaultRerunForgets:
		return "rerun-forgets"
	case FaultInterruptedForgotten:
		return "interrupted-forgotten"
	case FaultCompleteForgotten:
		return "complete-forgotten"
	case FaultPromptRerunEpoch:
		return "prompt-rerun-epoch"
	default:
		return fmt.Sprintf("fault(%d)", uint8(f))
	}
}

// Validate returns an error that wraps ErrConfig if the configuration is wrong.
func (c Config) Validate() error {
	switch {
	case c.Engine != EngineAllConcur && c.Engine != EngineAllConcurPlus:
		return fmt.Errorf("%w: engine %q, want %q or %q", ErrConfig, c.Engine, EngineAllConcur,
			EngineAllConcurPlus)
	case c.Servers < 1 || c.Servers > digraph.MaxOrder:
		return fmt.Errorf("%w: a group of %d servers, want 1 to %d", ErrConfig, c.Servers,
			digraph.MaxOrder)
	case uint64(c.Self) >= uint64(c.Servers):
		return fmt.Errorf("%w: server %d is none of 0 to %d", ErrConfig, c.Self, c.Servers-1)
	case c.Reliable == nil:
		return fmt.Errorf("%w: no reliable digraph", ErrConfig)
	case c.Reliable.Order() != c.Servers:
		return fmt.Errorf("%w: a reliable digraph over %d vertices for %d servers", ErrConfig,
			c.Reliable.Order(), c.Servers)
	case c.Servers > 1 && c.Reliable.Connectivity() < 1:
		return fmt.Errorf("%w: the reliable digraph is not strongly connected: messages "+
			"of some servers would not reach all others", ErrConfig)
	case c.MaxPayload < 0 || c.MaxPayload > MaxPayloadLimit:
		return fmt.Errorf("%w: a payload bound of %d bytes, want 1 to %d (0 for the default)",
			ErrConfig, c.MaxPayload, MaxPayloadLimit)
	case c.Detector >= detectorEnd:
		return fmt.Errorf("%w: no such detector, %d", ErrConfig, c.Detector)
	case c.Shard != 0 && c.Shard < c.Servers:
		return fmt.Errorf("%w: a group of %d servers in a shard of %d", ErrConfig, c.Servers,
			c.Shard)
	case c.Servers < c.Shard/2+1:
		return fmt.Errorf("%w: a group of %d servers, less than a majority of a shard of %d, "+
			"can never A-deliver", ErrConfig, c.Servers, c.Shard)
	case c.Detector != DetectorPerfect && c.NonUniform:
		return fmt.Errorf("%w: non-uniform delivery forks unless the detector is perfect",
			ErrConfig)
	case c.Prompt && (c.Engine != EngineAllConcurPlus || c.Detector != DetectorEventual):
		return fmt.Errorf("%w: prompt delivery needs %s and an eventually perfect detector",
			ErrConfig, EngineAllConcurPlus)
	case c.Fault >= faultEnd:
		return fmt.Errorf("%w: no such fault, %d", ErrConfig, c.Fault)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.FirstRound == 0 {
		c.FirstRound = 1
	}
	if c.Shard == 0 {
		c.Shard = c.Servers
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = MaxPayloadDefault
	}
	return c
}
