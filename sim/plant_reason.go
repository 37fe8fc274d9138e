package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// lie is what people see of a server that gives a false reason, the view as it is where the bug is
// another.
func (p Plant) lie(at *process, view shard.View) shard.View {
	r := &view.Reason
	m := at.chain.head().members
	switch p {
	case PlantReasonUnreachable: // takes members that are there for unreachable
		if r.Kind == shard.Forming {
			r.Waiting.Unreachable, r.Waiting.Silent = others(m, at.self), nil
		}
	case PlantReasonSilent: // takes members that are away for reachable
		if r.Kind == shard.Forming {
			r.Waiting.Silent, r.Waiting.Unreachable = others(m, at.self), nil
		}
	case PlantReasonForgot: // takes a disk that counts for a new one
		if r.Kind == shard.Forming {
			r.Waiting.Forgot = m.members
		}
	case PlantReasonNotNamed: // names nobody
		if r.Kind == shard.Forming {
			r.Waiting.Unreachable, r.Waiting.Silent, r.Full = nil, nil, nil
		}
	case PlantReasonRecover: // sends for an operator
		r.Recover = r.Kind == shard.Forming
	case PlantReasonFull: // blames the disk
		if view.Mode == shard.Starting {
			*r = shard.Reason{Kind: shard.NoSpace}
		}
	case PlantReasonNotFull: // keeps quiet about a full disk
		if r.Kind == shard.NoSpace {
			*r = shard.Reason{Kind: shard.Between}
		}
	case PlantReasonLearner: // calls every disk a learner's
		if view.Mode == shard.Following {
			r.Kind = shard.Learning
		}
	case PlantReasonRemoved: // says that the operator removed it
		if view.Mode == shard.Starting {
			*r = shard.Reason{Kind: shard.Removed}
		}
	case PlantReasonBench: // says that it is benched
		if view.Mode == shard.Following {
			r.Kind = shard.Benched
		}
	case PlantReasonEntering: // says that it is about to enter
		if r.Kind == shard.Forming {
			*r = shard.Reason{Kind: shard.Entering, Generation: view.Decided}
		}
	case PlantReasonKept: // says the first thing for ever
		if view.Mode != shard.Ordering {
			*r = shard.Reason{Kind: shard.Looking}
		}
	case PlantReasonMissing: // does not say why it halted
		if view.Mode == shard.Halted {
			*r = shard.Reason{}
		}
	case PlantReasonWhileOrdering: // has a reason not to order while it orders
		if view.Mode == shard.Ordering {
			*r = shard.Reason{Kind: shard.Outside}
		}
	}
	return view
}

// others are the members but for one.
func others(m *membership, but order.ServerID) []order.ServerID {
	return slices.DeleteFunc(slices.Clone(m.members), func(id order.ServerID) bool {
		return id == but
	})
}
