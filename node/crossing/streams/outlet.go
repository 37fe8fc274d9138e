package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// outlet is the way to one carrier: the node asks for a ring, attaches to it, then writes it.
type outlet struct {
	of      *outgoing
	carrier order.ServerID
	peer    rdmanet.PeerID
	attempt uint64
	asked   time.Time // when the ring was last asked for
	next    time.Time // when to ask for it next
	// wanted is the accepted offer, of kind 0 if there is none. Its attachment is in progress in
	// attaching, or in use in connection.
	wanted     received
	attaching  *attaching
	connection *connection
	ended      bool
}

// attaching is an attempt to connect to a ring; attachment and err are its result.
type attaching struct {
	outlet     *outlet
	offer      received
	cancel     context.CancelFunc
	attachment rdmanet.Attachment
	err        error
}

// close closes the attachment, if there is one.
func (a *attaching) close() {
	if a.attachment != nil {
		_ = a.attachment.Close() // only ever nil
	}
}

// connection is an attachment that is in use, or has operations outstanding.
type connection struct {
	number     uint64
	outlet     *outlet
	writer     *stream.Writer
	attachment rdmanet.Attachment
	under      int // operations outstanding
}

// forget drops a connection that is out of use, once no operation is outstanding.
func (c *connection) forget() {
	if c.under == 0 && c.outlet.connection != c {
		delete(c.outlet.of.s.connections, c.number)
	}
}

// step asks for a ring if there is none, or if it may have been lost unnoticed.
func (o *outlet) step(now time.Time, stuck bool) {
	if o.connection != nil {
		if err := o.connection.attachment.Err(); err != nil {
			o.of.s.config.Logger.Debug("streams: a ring is lost",
				"peer", o.connection.attachment.Peer(), "error", err)
			o.lost(now)
		}
	}
	if o.attaching != nil || o.connection != nil && !stuck {
		return
	}
	if o.connection != nil {
		o.next = o.asked.Add(2 * o.of.s.config.AskEvery)
	}
	if now.Before(o.next) {
		o.of.s.by(o.next)
		return
	}
	m := message{kind: messageAsk, child: o.of.child, attempt: o.attempt}
	o.of.s.send(o.peer, &m)
	o.asked, o.next = now, now.Add(o.of.s.config.AskEvery)
	o.of.s.by(o.next)
}

// askSoon asks at once, or after ringPause since the last ask.
func (o *outlet) askSoon(now time.Time) {
	if soon := o.asked.Add(ringPause); soon.Before(o.next) {
		o.next = soon
	}
	o.of.s.by(maxTime(now, o.next))
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lost ends the attempt and starts another.
func (o *outlet) lost(now time.Time) {
	o.disconnect()
	o.wanted = received{}
	o.attempt = o.of.s.number()
	o.next = maxTime(now, o.asked.Add(o.of.s.config.AskEvery))
	o.of.s.by(o.next)
}

// disconnect ends the use of the ring.
func (o *outlet) disconnect() {
	if o.attaching != nil {
		o.attaching.cancel()
	}
	c := o.connection
	if c == nil {
		return
	}
	o.of.s.mu.Lock()
	c.writer.Detach(o.carrier)
	o.connection = nil
	o.of.s.mu.Unlock()
	_ = c.attachment.Close() // only ever nil
	c.forget()
}

// end ends the outlet, when its carrier, or this node, is no longer a member.
func (o *outlet) end() {
	o.ended = true
	o.disconnect()
}

// restarted handles a restart of the carrier: it now has another incarnation.
func (o *outlet) restarted(incarnation rdmanet.Incarnation, now time.Time) {
	if o.wanted.message.kind != 0 && o.wanted.from.Incarnation < incarnation {
		o.lost(now)
		o.askSoon(now)
	} else if o.connection == nil {
		o.askSoon(now)
	}
}

// offered handles an offer.
func (o *outlet) offered(l received, now time.Time) {
	if l.message.attempt != o.attempt || l.from.Incarnation < o.wanted.from.Incarnation {
		return
	}
	if o.wanted.from == l.from && o.wanted.message.region == l.message.region {
		if o.connection != nil {
			o.of.s.mu.Lock()
			o.of.writer.Ordered(o.carrier, l.message.position)
			o.of.s.mu.Unlock()
		}
		return
	}
	o.disconnect() // the carrier removed the ring before
	o.wanted = l
	o.attach()
}

// attach starts to connect to the wanted ring, unless an earlier attempt is still running.
func (o *outlet) attach() {
	if o.attaching != nil || o.wanted.message.kind == 0 || o.ended {
		return
	}
	s := o.of.s
	ctx, cancel := context.WithTimeout(s.ctx, attachTimeout)
	a := &attaching{outlet: o, offer: o.wanted, cancel: cancel}
	o.attaching = a
	s.working.Go(func() {
		defer cancel()
		a.attachment, a.err = s.config.Host.Attach(ctx, a.offer.from.ID, a.offer.message.region)
		s.mail.mu.Lock()
		s.mail.attached = append(s.mail.attached, a)
		s.mail.mu.Unlock()
		s.ring()
	})
}

// attached handles the result of an attempt to connect.
func (o *outlet) attached(a *attaching, now time.Time) {
	s := o.of.s
	o.attaching = nil
	if o.ended || o.wanted != a.offer {
		a.close()
		o.attach()
		return
	}
	if a.err == nil {
		if got := a.attachment; got.Peer() != a.offer.from || got.Size() != s.config.RingSize ||
			got.Permission() != rdmanet.PermissionReadWrite {
			a.err = fmt.Errorf("%w: a ring of %d bytes of %s with permission %s", ErrConfig,
				got.Size(), got.Peer(), got.Permission())
		}
	}
	if a.err == nil {
		s.mu.Lock()
		if a.err = o.of.writer.Attach(o.carrier, a.offer.message.life,
			a.offer.message.position); a.err == nil {
			o.connection = &connection{number: s.number(), outlet: o, writer: o.of.writer,
				attachment: a.attachment}
		}
		s.mu.Unlock()
	}
	if a.err != nil {
		s.config.Logger.Debug("streams: a ring cannot be used", "peer", a.offer.from, "error",
			a.err)
		a.close()
		o.lost(now)
		return
	}
	s.connections[o.connection.number] = o.connection
	s.config.Logger.Debug("streams: a ring is used", "peer", a.offer.from, "position",
		a.offer.message.position)
}

// feedback handles a carrier's feedback.
func (o *outlet) feedback(l received) {
	o.of.s.mu.Lock()
	defer o.of.s.mu.Unlock()
	if o.connection != nil && o.connection.attachment.Peer() != l.from {
		return // of another life
	}
	o.of.writer.Feedback(o.carrier, l.message.feedback)
}
