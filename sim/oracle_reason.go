package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// Reason is the property that a server that does not order gives a reason, and that the reason is
// true.
const Reason order.Property = "reason"

// judgeView judges what people see of a server.
func (s *simulation) judgeView(p *process) {
	v := p.view()
	wrong := ""
	switch {
	case v.Mode < shard.Starting || v.Mode > shard.Leaving:
		wrong = "that is no mode"
	case v.Mode != shard.Ordering && v.Mode != shard.Leaving && v.Why == "":
		wrong = "it does not say why"
	case v.Mode != shard.Leaving && (v.Mode == shard.Ordering) != (v.Reason.Kind == shard.NoReason):
		wrong = fmt.Sprintf("its reason is of kind %d", v.Reason.Kind)
	case v.Mode == shard.Ordering && !p.starts() &&
		(p.engine == nil || v.Group == nil || v.Group.Run != p.group.Run):
		wrong = "it has no engine in this run"
	}
	head := p.chain.head()
	if head.members.has(p.self) && v.Learner == head.members.counts(p.self, p.disk.id,
		p.disk.original) {
		wrong = fmt.Sprintf("its disk counts: %v", !v.Learner)
	}
	if s.trace.HasText() {
		s.trace.Say(s.now, "%d is %v: %s", p.self, v.Mode, v.Why)
	}
	if wrong != "" {
		s.broke(Reason, fmt.Sprintf("server %d says %v (%s), learner %v", p.self, v.Mode, v.Why,
			v.Learner), wrong, p.describe())
	}
}

// starts reports whether the start of an engine is yet to be executed.
func (p *process) starts() bool {
	return slices.ContainsFunc(p.effects, func(e shard.Effect) bool {
		_, start := e.(shard.Start)
		return start
	})
}

// judgeEnd judges why a process ends by itself.
func (s *simulation) judgeEnd(p *process, err error) {
	s.trace.Note(s.now, 116, uint64(p.self))
	s.trace.Say(s.now, "%d ends: %v", p.self, err)
	s.reviewBy(p.self)
	kind := p.view().Reason.Kind
	switch {
	case errors.Is(err, shard.ErrRemoved) && kind == shard.Removed:
		if !was(p.chain.head(), p.self) {
			s.broke(Reason, fmt.Sprintf("server %d ends: %v", p.self, err),
				"its chain does not say so")
		}
	case errors.Is(err, shard.ErrFork) && kind == shard.Forked && s.lossExcused():
	default:
		s.broke(Reason, fmt.Sprintf("server %d ends: %v", p.self, err))
	}
}
