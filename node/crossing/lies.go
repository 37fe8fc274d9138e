package crossing

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// liesEvery is the minimum time between two lines of the log about one member's vouchers.
const liesEvery = 10 * time.Second

// lies are what members of the own shard vouched for although this node believes something else. A
// correct member vouches for what is true. So the member lies, or too many members of the other
// shard lied to this node.
type lies struct {
	mu     sync.Mutex
	count  uint64
	logged map[ledger.MemberIndex]time.Time // of present members
}

// judge compares what a batch's voucher says with what this node believes.
func (b *book) judge(batch *ledger.VerifiedBatch) {
	wrong := b.verdicts.Contradictions(batch) +
		b.streams.Contradictions(batch.Voucher.Stream)
	if wrong == 0 {
		return
	}
	membership := b.config.Node.Store().Membership()
	at := slices.IndexFunc(membership.Members, func(m ledger.GroupMember) bool {
		return bytes.Equal(m.Key, batch.Voucher.Key[:])
	})
	if at < 0 {
		return // its word does not count
	}
	if member := &membership.Members[at]; b.lies.add(member.Index, wrong, time.Now()) {
		b.config.Logger.Error("a member vouches for something else of other shards than this "+
			"node believes; if the other nodes say so, too, remove the member", "member",
			member.Name, "statements", wrong)
	}
}

// add counts a member's false statements, and reports whether the log should name it.
func (l *lies) add(member ledger.MemberIndex, statements uint64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count += statements
	if last, logged := l.logged[member]; logged && now.Sub(last) < liesEvery {
		return false
	}
	if len(l.logged) >= ledger.MaxMembers {
		clear(l.logged)
	}
	l.logged[member] = now
	return true
}

func (l *lies) total() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Lies implements Crossing.
func (b *book) Lies() uint64 {
	if !b.started.Load() {
		return 0
	}
	count := b.lies.total() + b.verdicts.Status().Contradicted
	if incoming := b.streams.Status().Incoming; incoming != nil {
		count += incoming.Lies
	}
	return count
}
