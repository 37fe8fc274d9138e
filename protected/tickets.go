package protected

import "github.com/ledgerd/ledgerd/order"

// Ticket identifies a request for a permission [TRAM, section 5.4]: a timestamp, followed by the
// number of the request. A process that lost its way to a memory asks again under the same
// timestamp. Tickets of two servers are never equal, and a higher ticket is the later one.
type Ticket uint64

// Timestamp orders the processes that ask for one permission: a counter, then the server that
// counts. It is the paper's tmp. 0 is none.
type Timestamp uint64

const (
	requestBits = 16
	serverBits  = 8
)

// ServersMax is the maximum number of servers that may ask for one permission.
const ServersMax = 1<<serverBits - 1

// RequestsMax is how often one timestamp can ask one process.
const RequestsMax = 1<<requestBits - 1

// MakeTimestamp returns the timestamp of a server with a counter.
func MakeTimestamp(counter uint64, server order.ServerID) Timestamp {
	return Timestamp(counter<<serverBits | uint64(server))
}

// Counter returns the timestamp's counter.
func (t Timestamp) Counter() uint64 { return uint64(t) >> serverBits }

// Server returns the server that made the timestamp.
func (t Timestamp) Server() order.ServerID { return order.ServerID(t & (1<<serverBits - 1)) }

// Ticket returns the ticket of the timestamp's request with the given number.
func (t Timestamp) Ticket(request uint64) Ticket { return Ticket(uint64(t)<<requestBits | request) }

// Timestamp returns the timestamp under which the ticket asks.
func (t Ticket) Timestamp() Timestamp { return Timestamp(t >> requestBits) }
