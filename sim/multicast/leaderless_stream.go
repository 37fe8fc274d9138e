package multicast

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	streams "github.com/ledgerd/ledgerd/tram/stream"
)

// downstream is a stream to a child, at a member of the parent: a writer, a ring at each carrier,
// and a region to which the carriers write feedback.
type downstream struct {
	child   order.GroupID
	entries [][]byte // the stream, as this member has it: entry n is entries[n-1]
	writer  *streams.Writer
	back    rdmanet.Region // streams.FeedbackSize bytes for each carrier
	rings   []ringEnd      // by carrier
}

// ringEnd is a writer's end of a ring.
type ringEnd struct {
	attachment rdmanet.Attachment // nil while not attached
	life       uint32
	lost       bool
	lostAt     uint64
}

// upstream is the stream from the parent, at a member of the child.
type upstream struct {
	parent  order.GroupID
	config  streams.Config
	carrier *streams.Carrier
	rings   []rdmanet.Region // by writer
	lives   []streams.Life
	backs   []backEnd // by writer
}

// backEnd is a carrier's end of the way back to a writer.
type backEnd struct {
	attachment rdmanet.Attachment // nil while not attached
	term       uint32             // counts the attachments
	busy       bool               // a write is under way
	news       bool               // there is feedback to write
	lost       bool
	lostAt     uint64
}

// openDown makes a member's end of the stream to a child.
func (r *leaderlessReplica) openDown(child order.GroupID, config streams.Config) error {
	config.Self = r.self.Server
	writer, err := streams.NewWriter(config)
	if err != nil {
		return err
	}
	back, err := r.host.Expose(fmt.Sprintf("back/%d", child),
		streams.FeedbackSize*len(config.Carriers))
	if err != nil {
		return fmt.Errorf("expose at %v: %w", r.self, err)
	}
	r.down = append(r.down, &downstream{child: child, writer: writer, back: back,
		rings: make([]ringEnd, len(config.Carriers))})
	return nil
}

// openUp makes a member's end of the stream from its parent.
func (r *leaderlessReplica) openUp(parent order.GroupID, config streams.Config) error {
	config.Self = r.self.Server
	carrier, err := streams.NewCarrier(config, 0, 0)
	if err != nil {
		return err
	}
	r.up = &upstream{parent: parent, config: config, carrier: carrier,
		lives: make([]streams.Life, len(config.Writers)),
		backs: make([]backEnd, len(config.Writers))}
	for writer := range config.Writers {
		ring, err := r.host.Expose(fmt.Sprintf("ring/%d", writer), config.RingSize)
		if err != nil {
			return fmt.Errorf("expose at %v: %w", r.self, err)
		}
		r.up.rings = append(r.up.rings, ring)
	}
	return nil
}

// peer returns a process as the fabric knows it. Processes do not restart here.
func (l *leaderless) peer(of order.Replica) rdmanet.Peer {
	host := l.replicas[of].host
	return rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()}
}

// renew begins a new life of a writer's ring. Nothing of the old life lands any more.
func (u *upstream) renew(r *leaderlessReplica, writer order.Replica) (streams.Life, error) {
	ring, peer := u.rings[writer.Server], r.form.peer(writer)
	if err := ring.Revoke(peer); err != nil {
		return 0, err
	}
	u.lives[writer.Server]++
	if err := u.carrier.Attach(writer.Server, u.lives[writer.Server], ring); err != nil {
		return 0, err
	}
	return u.lives[writer.Server], ring.Grant(peer, rdmanet.PermissionReadWrite)
}

// attach attaches a writer to its ring.
func (d *downstream) attach(r *leaderlessReplica, carrier order.Replica, life streams.Life,
	position uint64) error {
	attachment, err := r.host.Attach(context.Background(), PeerOf(carrier),
		fmt.Sprintf("ring/%d", r.self.Server))
	if err != nil {
		return err
	}
	d.rings[carrier.Server] = ringEnd{attachment: attachment, life: uint32(life)}
	return d.writer.Attach(carrier.Server, life, position)
}

// renew lets a carrier write feedback again. Nothing that it wrote before lands any more.
func (d *downstream) renew(r *leaderlessReplica, carrier order.Replica) error {
	peer := r.form.peer(carrier)
	if err := d.back.Revoke(peer); err != nil {
		return err
	}
	return d.back.Grant(peer, rdmanet.PermissionReadWrite)
}

// attach attaches a carrier to its way back.
func (u *upstream) attach(r *leaderlessReplica, writer order.Replica) error {
	attachment, err := r.host.Attach(context.Background(), PeerOf(writer),
		fmt.Sprintf("back/%d", r.self.Group))
	if err != nil {
		return err
	}
	u.backs[writer.Server] = backEnd{attachment: attachment, term: u.backs[writer.Server].term + 1,
		news: true}
	return nil
}

// lose records that a ring is out of reach.
func (d *downstream) lose(r *leaderlessReplica, carrier order.ServerID) {
	d.writer.Detach(carrier)
	d.rings[carrier] = ringEnd{lost: true, lostAt: uint64(r.form.world.Now() / tick)}
	r.form.world.Note(r.self, "has lost its ring at %d/%d", d.child, carrier)
}

// lose records that a writer is out of reach.
func (u *upstream) lose(r *leaderlessReplica, writer order.ServerID) {
	u.backs[writer] = backEnd{term: u.backs[writer].term, lost: true,
		lostAt: uint64(r.form.world.Now() / tick)}
}

// completed handles the completion of a write into a ring.
func (d *downstream) completed(r *leaderlessReplica, carrier order.ServerID, life uint32,
	err error) {
	d.writer.Completed(carrier)
	if end := &d.rings[carrier]; err != nil && end.attachment != nil && end.life == life {
		d.lose(r, carrier)
	}
}

// completed handles the completion of a write of feedback.
func (u *upstream) completed(r *leaderlessReplica, writer order.ServerID, term uint32, err error) {
	end := &u.backs[writer]
	if end.attachment == nil || end.term != term {
		return
	}
	end.busy = false
	if err != nil {
		u.lose(r, writer)
	}
}

// poll advances the stream to a child.
func (d *downstream) poll(r *leaderlessReplica, now uint64) {
	for carrier := range d.rings {
		d.writer.Feedback(order.ServerID(carrier), streams.FeedbackAt(d.back,
			carrier*streams.FeedbackSize))
		end := &d.rings[carrier]
		if patience := r.form.world.Deployment().Patience; end.lost &&
			now >= end.lostAt+uint64(patience/tick) {
			end.lost = false // the letter gets one answer, unless the carrier has crashed
			r.form.world.Send(r.self, order.Replica{Group: d.child,
				Server: order.ServerID(carrier)}, []byte{letterWantRing})
		}
	}
	before := d.writer.TookOver()
	d.writer.Tick(now)
	if !before && d.writer.TookOver() {
		r.form.world.Note(r.self, "takes over the stream to group %d", d.child)
	}
	for number := d.writer.Next(); number <= uint64(len(d.entries)); number = d.writer.Next() {
		if d.writer.Offer(number, d.entries[number-1]) != nil {
			break // there is no room
		}
	}
	for _, write := range d.writer.Writes() {
		end := &d.rings[write.Carrier]
		to := order.Replica{Group: d.child, Server: write.Carrier}
		operation := rdmanet.Operation{To: end.attachment, Kind: rdmanet.OperationWrite,
			Offset: write.Offset, Bytes: write.Bytes, Tag: tag(end.life, to)}
		if err := r.queue.Post(operation); err != nil {
			panic(fmt.Sprintf("%v posts to %v: %v", r.self, to, err))
		}
		r.form.world.Note(r.self, "writes %d entries from %d on to %v", write.Entries, write.Number,
			to)
	}
}

// poll advances the stream from the parent.
func (u *upstream) poll(r *leaderlessReplica, now uint64) {
	u.carrier.Poll()
	u.carrier.Advance(r.relay.Position(), r.relay.Position())
	u.carrier.Tick(now)
	if writers, reasons := u.carrier.Broken(); len(writers) > 0 {
		panic(fmt.Sprintf("the ring of %d/%d: %v", u.parent, writers[0], reasons[0]))
	}
	for _, report := range u.carrier.Reports() {
		u.backs[report.Writer].news = true
	}
	for writer := range u.backs {
		end, to := &u.backs[writer], order.Replica{Group: u.parent, Server: order.ServerID(writer)}
		if patience := r.form.world.Deployment().Patience; end.lost &&
			now >= end.lostAt+uint64(patience/tick) {
			end.lost = false
			r.form.world.Send(r.self, to, []byte{letterWantBack})
		}
		if end.attachment == nil || end.busy || !end.news {
			continue
		}
		feedback, err := u.carrier.Report(to.Server)
		if err != nil {
			continue // it has no ring, so it needs no feedback
		}
		end.news, end.busy = false, true
		operation := rdmanet.Operation{
			To: end.attachment, Kind: rdmanet.OperationWrite,
			Offset: int(r.self.Server) * streams.FeedbackSize, Bytes: feedback.Append(nil),
			Tag: tag(end.term, to),
		}
		if err := r.queue.Post(operation); err != nil {
			panic(fmt.Sprintf("%v posts to %v: %v", r.self, to, err))
		}
	}
}

// copy returns an independent replica in the same state.
func (r *leaderlessReplica) copy() *leaderlessReplica {
	own := *r
	own.relay, own.entered, own.waiting, own.down = r.relay.Clone(), maps.Clone(r.entered),
		slices.Clip(r.waiting), nil
	for _, d := range r.down {
		down := *d
		down.entries, down.writer, down.rings = slices.Clip(d.entries), d.writer.Clone(),
			slices.Clone(d.rings)
		own.down = append(own.down, &down)
	}
	if r.up != nil {
		up := *r.up
		up.carrier, up.lives, up.backs = r.up.carrier.Clone(), slices.Clone(r.up.lives),
			slices.Clone(r.up.backs)
		own.up = &up
	}
	return &own
}

// appendState appends a replica's state, for a search.
func (r *leaderlessReplica) appendState(state []byte) []byte {
	state = r.relay.AppendState(state)
	// fmt sorts maps by their keys
	state = fmt.Appendf(state, "%v %q %v", r.entered, r.waiting, r.proposing)
	lost := func(was bool, at uint64) uint64 {
		if !was {
			return 0
		}
		return 1 + min(uint64(r.form.world.Now()/tick)-at,
			uint64(r.form.world.Deployment().Patience/tick))
	}
	for _, d := range r.down {
		state = d.writer.AppendState(state)
		for _, end := range d.rings {
			state = fmt.Appendf(state, "%v %d %v;", end.attachment != nil, end.life,
				lost(end.lost, end.lostAt))
		}
		state = fmt.Appendf(state, "%x", d.entries)
	}
	if u := r.up; u != nil {
		state = u.carrier.AppendState(state)
		for _, end := range u.backs {
			state = fmt.Appendf(state, "%v %d %v %v %v;", end.attachment != nil, end.term, end.busy,
				end.news, lost(end.lost, end.lostAt))
		}
	}
	return state
}
