package node

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/home"
)

// removedAfter is how long a node that was removed from the membership stays, so that the others get the rest of what it sent, and clients an answer. Where it does not know whether the block that
// removed it is durable it stays for longer: if that is taken back, it is a member. Once it knows, it writes that down: after a restart nobody would tell it, since the others do not talk to it any more.
const (
	removedAfter       = time.Second
	removedForAllAfter = 10 * time.Second
)

// leave ends this node's part when the operator has removed it from the membership.
func (s *supervisor) leave() error {
	if s.at() != nil || s.settling.active {
		return nil
	}
	self := ledger.MemberIndex(s.node.home.Self)
	former := s.node.Store().FormerMembers()
	at := slices.IndexFunc(former, func(f ledger.FormerMember) bool { return f.Index == self })
	if at < 0 {
		s.leaving, s.leftAt = time.Time{}, 0
		return nil
	}
	left := former[at].Left
	end := fmt.Errorf("%w at block %d; its home can be removed", ErrRemoved, left)
	if s.leaving.IsZero() {
		s.leaving = time.Now()
		s.setMode(api.ModeHalted, "%v", ErrRemoved)
		if s.removedForGood(left) {
			return end
		}
	}
	if heights, _ := s.node.pipeline.Heights(); heights.Durable >= left && s.leftAt != left {
		s.leftAt = left
		if err := s.writeRemoved(left); err != nil {
			s.node.logger.Warn("this node will not know when it is started again that it was removed for good", "error", err)
		}
	}
	stay := removedForAllAfter
	if s.leftAt == left {
		stay = removedAfter
	}
	if time.Since(s.leaving) > stay {
		return end
	}
	return nil
}

// writeRemoved notes which block removed this node, for good.
func (s *supervisor) writeRemoved(left ledger.Height) error {
	_, hash, err := s.node.Store().Header(left)
	if err != nil {
		return err
	}
	return home.WriteFile(s.node.home.Removed(), []byte(hash.String()+"\n"), 0o644)
}

// removedForGood tells whether an earlier process noted that this very block removed it. What cannot be read says nothing: it stays for longer then.
func (s *supervisor) removedForGood(left ledger.Height) bool {
	text, err := os.ReadFile(s.node.home.Removed())
	if err != nil {
		return false
	}
	_, hash, err := s.node.Store().Header(left)
	return err == nil && strings.TrimSpace(string(text)) == hash.String()
}
