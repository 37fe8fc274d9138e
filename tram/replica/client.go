package replica

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Client A-multicasts messages [TRAM, Algorithm 1]. It is a machine that is polled. It is not safe
// for concurrent use.
type Client struct {
	options Options
	self    order.Replica
	ways    *protected.Ways
	streams []*stream // by group, nil before the first message
	failed  error
}

var _ protected.Machine = (*Client)(nil)

// stream is a client's stream to one group, the lca of its messages' destinations.
type stream struct {
	targets []*target
	// the messages as they lie in the group's buffers, until the group is known to have ordered
	// them
	box   *protected.Outbox
	sent  uint64 // the number of the last message
	taken uint64 // the group has ordered all up to here, as far as the client knows
}

// target is a replica of the group, and the way to this client's buffer there.
type target struct {
	protected.Way
	stream  *stream
	board   *protected.Row
	state   protected.PetitionState
	request protected.Ticket // 0 at first, when the buffer is granted without a request
	next    uint64
	taken   uint64 // the last number that the replica has taken
	asked   time.Duration
}

// NewClient returns the client with the given number on its host. The host must have the
// incarnation that the options name. The caller keeps the host, and closes it after Close. It
// returns ErrOptions, or the host's error.
func NewClient(options Options, client order.ServerID, host rdmanet.RegionHost) (*Client, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	c := &Client{options: options, self: order.Replica{Group: order.Clients, Server: client},
		streams: make([]*stream, options.Tree.Groups())}
	if !options.has(c.self) {
		return nil, fmt.Errorf("%w: there is no client %d", ErrOptions, client)
	}
	replicas := options.number(order.Replica{Group: order.Clients})
	var err error
	if c.ways, err = protected.NewWays(host, 64+replicas*(4+2*options.Window),
		options.Patience); err != nil {
		return nil, err
	}
	return c, nil
}

// Multicast A-multicasts a message, which enters at the lca of its destinations. It copies the
// message. It returns order.ErrNotNow if there is no room until the group has ordered earlier
// messages, order.ErrTooLarge, tram.ErrDestinations, or order.ErrHalted once the fabric has failed
// for good.
func (c *Client) Multicast(m order.Multicast) error {
	switch {
	case c.failed != nil:
		return fmt.Errorf("%w: %w", order.ErrHalted, c.failed)
	case len(m.Payload) > c.options.PayloadMax:
		return fmt.Errorf("%w: %d bytes, want up to %d", order.ErrTooLarge, len(m.Payload),
			c.options.PayloadMax)
	}
	if err := c.options.Tree.CheckDestinations(m.To); err != nil {
		return fmt.Errorf("multicast: %w", err)
	}
	s := c.stream(c.options.Tree.LCA(m.To))
	number := s.sent + 1
	if s.box.Lent(number) && c.options.Fault != FaultLentReused ||
		number > s.taken+uint64(c.options.BufferSlots) {
		return order.ErrNotNow
	}
	s.sent = number
	AppendMessage(s.box.Put(number, messageSize(m)), m)
	if c.options.Note != nil {
		c.options.note("multicasts %v as its number %d to group %d", m.ID, number,
			c.options.Tree.LCA(m.To))
	}
	return nil
}

// stream returns the stream to a group. It makes the stream on first use.
func (c *Client) stream(group order.GroupID) *stream {
	if c.streams[group] == nil {
		s := &stream{box: protected.NewOutbox(c.options.bufferRing())}
		for server, peer := range c.options.Replicas[group] {
			t := &target{stream: s, board: protected.NewRow(peer, boardRegion,
				c.options.number(c.self), rowWords)}
			t.Peer, t.Region, t.Owner = peer, clientRegionName(c.self.Server), t
			t.Place = 2 * c.options.number(order.Replica{Group: group,
				Server: order.ServerID(server)})
			t.board.Place = t.Place + 1
			s.targets = append(s.targets, t)
		}
		c.streams[group] = s
	}
	return c.streams[group]
}

// Pending returns how many messages are not known to be ordered.
func (c *Client) Pending() int {
	pending := uint64(0)
	for _, s := range c.streams {
		if s != nil {
			pending += s.sent - s.taken
		}
	}
	return int(pending)
}

// Poll makes the client work once, like Replica.Poll.
func (c *Client) Poll(now time.Duration) bool {
	if c.failed != nil {
		return false
	}
	busy := c.Complete(now)
	w := c.ways
	for _, s := range c.streams {
		if s == nil {
			continue
		}
		for _, t := range s.targets {
			busy = c.drive(t) || busy
			busy = t.board.Drive(w) || busy
		}
	}
	if err := w.Flush(); err != nil {
		c.failed = err
	}
	return busy
}

// Complete is the first part of Poll, like Replica.Complete.
func (c *Client) Complete(now time.Duration) bool {
	if c.failed != nil {
		return false
	}
	return c.ways.Complete(now, c.completed)
}

// drive writes to a replica's buffer what it lacks. The client writes to all replicas together
// [TRAM, Algorithm 1, lines 4 and 5].
func (c *Client) drive(t *target) bool {
	s, w := t.stream, c.ways
	switch t.state {
	case protected.PetitionIdle:
		if w.Now() < t.Since || s.sent == s.taken {
			return false
		}
		w.Attach(&t.Way)
		t.state = protected.PetitionAttaches
		return true
	case protected.PetitionReads:
		if !t.Reading() && w.Room(1) {
			w.ReadWord(&t.Way, postTicket, protected.HeadTicket)
		}
		return false
	case protected.PetitionWorks:
	default:
		return false
	}
	slots := uint64(c.options.BufferSlots)
	if !t.Reading() && s.sent > s.taken && (s.sent > t.taken+slots/2 ||
		w.Now() >= t.asked+c.options.Patience) && w.Room(1) {
		t.asked = w.Now()
		w.ReadWord(&t.Way, postTaken, protected.HeadTaken)
	}
	busy := false
	t.next = max(t.next, s.taken+1)
	for t.next <= s.sent && (t.next <= t.taken+slots ||
		c.options.Fault == FaultBufferReusedEarly) && t.Flying() < 2*c.options.Window && w.Room(1) {
		s.box.Post(w, &t.Way, postEntry, t.next)
		t.next++
		busy = true
	}
	return busy
}

// lose ends a target's link. After an error, writes may still be under way and would land where
// later messages lie. The client therefore asks the owner to grant its buffer anew before it writes
// anything.
func (c *Client) lose(t *target, wrote bool) {
	c.ways.Detach(&t.Way)
	t.state = protected.PetitionIdle
	t.Since = c.ways.Now() + c.ways.Patience(t.Tries)
	t.Tries++
	if wrote {
		t.request++
	}
	if t.request > 0 {
		t.board.Put(protected.WordTicket, uint64(t.request))
		t.board.Again(protected.WordTicket)
	}
}

// completed handles the completion of a post.
func (c *Client) completed(p protected.Post, err error) {
	if row, is := p.Way.Owner.(*protected.Row); is {
		row.Completed(c.ways, err)
		return
	}
	t, is := p.Way.Owner.(*target)
	switch {
	case !is:
		return
	case err != nil:
		c.options.note("loses %s: %v", t.Peer, err)
		c.lose(t, t.state == protected.PetitionWorks)
		return
	}
	switch p.Kind {
	case postTicket:
		if protected.Ticket(t.Word()) != t.request {
			c.lose(t, false) // it is still the earlier grant
			return
		}
		c.ways.ReadWord(&t.Way, postTaken, protected.HeadTaken)
	case postTaken:
		t.taken = max(t.taken, t.Word())
		t.stream.taken = max(t.stream.taken, t.taken)
		if t.state == protected.PetitionReads {
			t.state, t.next = protected.PetitionWorks, t.stream.taken+1
			t.asked = c.ways.Now()
		}
	case postEntry:
		t.Tries = 0
	}
}

// Wanted returns the attachments that the driver should make, each once. The slice is valid until
// the next call.
func (c *Client) Wanted() []protected.Want { return c.ways.Wanted() }

// Attached answers a Want with the result of Attach.
func (c *Client) Attached(number uint64, attachment rdmanet.Attachment, err error) {
	way, err := c.ways.Attached(number, attachment, err)
	if way == nil {
		return
	}
	switch owner := way.Owner.(type) {
	case *protected.Row:
		owner.Answered(c.ways, err)
	case *target:
		if err != nil {
			c.lose(owner, false)
			return
		}
		owner.state = protected.PetitionReads
	}
}

// Regions returns no regions: a client has none, and waits for completions.
func (c *Client) Regions() []rdmanet.Region { return nil }

// Outstanding returns the number of operations under way.
func (c *Client) Outstanding() int { return c.ways.Outstanding() }

// String describes the client's state in one line.
func (c *Client) String() string {
	text := fmt.Sprintf("%d messages not known to be ordered, %d operations", c.Pending(),
		c.Outstanding())
	for group, s := range c.streams {
		if s != nil {
			text += fmt.Sprintf("; group %d took %d of %d", group, s.taken, s.sent)
			for _, t := range s.targets {
				text += fmt.Sprintf(" (%d: next %d, took %d, request %d)", t.state, t.next, t.taken,
					t.request)
			}
		}
	}
	return text
}

// Close abandons the client's operations. Those under way continue until the host is closed.
func (c *Client) Close() error {
	c.failed = rdmanet.ErrClosed
	for _, s := range c.streams {
		if s == nil {
			continue
		}
		for _, t := range s.targets {
			c.ways.Detach(&t.Way)
			c.ways.Detach(&t.board.Way)
		}
	}
	return c.ways.Close()
}
