package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// lie returns the view with a false reason. It returns the view as it is if the bug is another one.
func (p Plant) lie(at *process, view shard.View) shard.View {
	r := &view.Reason
	m := at.chain.head().members
	switch p {
	case PlantReasonUnreachable: // claims that reachable members are unreachable
		if r.Kind == shard.Forming {
			r.Waiting.Unreachable, r.Waiting.Silent = others(m, at.self), nil
		}
	case PlantReasonSilent: // claims that absent members are reachable
		if r.Kind == shard.Forming {
			r.Waiting.Silent, r.Waiting.Unreachable = others(m, at.self), nil
		}
	case PlantReasonForgot: // claims that a disk that counts is a new one
		if r.Kind == shard.Forming {
			r.Waiting.Forgot = m.members
		}
	case PlantReasonNotNamed: // names no member
		if r.Kind == shard.Forming {
			r.Waiting.Unreachable, r.Waiting.Silent, r.Full = nil, nil, nil
		}
	case PlantReasonRecover: // asks for an operator
		r.Recover = r.Kind == shard.Forming
	case PlantReasonFull: // blames the disk
		if view.Mode == shard.Starting {
			*r = shard.Reason{Kind: shard.NoSpace}
		}
	case PlantReasonNotFull: // conceals a full disk
		if r.Kind == shard.NoSpace {
			*r = shard.Reason{Kind: shard.Between}
		}
	case PlantReasonLearner: // claims that every disk is a learner's
		if view.Mode == shard.Following {
			r.Kind = shard.Learning
		}
	case PlantReasonRemoved: // claims that the operator removed it
		if view.Mode == shard.Starting {
			*r = shard.Reason{Kind: shard.Removed}
		}
	case PlantReasonBench: // claims that it is benched
		if view.Mode == shard.Following {
			r.Kind = shard.Benched
		}
	case PlantReasonEntering: // claims that it is about to enter
		if r.Kind == shard.Forming {
			*r = shard.Reason{Kind: shard.Entering, Generation: view.Decided}
		}
	case PlantReasonKept: // keeps its first reason forever
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

// others returns the members except one.
func others(m *membership, but order.ServerID) []order.ServerID {
	return slices.DeleteFunc(slices.Clone(m.members), func(id order.ServerID) bool {
		return id == but
	})
}
