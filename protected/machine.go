package protected

import (
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Word is the size in bytes of a word, which is never torn.
const Word = rdmanet.WordSize

// Machine is an engine over one-sided memory, as its driver sees it. It is polled: it has no
// goroutine, no clock, and does not wait. No two methods may be called at the same time.
type Machine interface {
	// Poll makes the machine work once: it reads its memory and the completions, and acts on them.
	// now is the time since any fixed instant, and never runs backwards. Poll reports whether there
	// was anything to do. If not, nothing changes before the driver's next input, a write with Ring
	// to one of Regions, a completion, or the end of one of the machine's spans.
	Poll(now time.Duration) bool
	// Complete is the first part of Poll: it handles completions and nothing else. It reports
	// whether there were any. A search over all schedules calls it separately.
	Complete(now time.Duration) bool
	// Wanted returns the attachments that the driver should make, each once. The slice is valid
	// until the next call.
	Wanted() []Want
	// Attached answers a Want with the result of rdmanet's Attach, once, whatever the result. It
	// may be called at any time between Polls.
	Attached(number uint64, attachment rdmanet.Attachment, err error)
	// Regions returns the regions to Await on. Other processes write to them, with Ring.
	Regions() []rdmanet.Region
	// Outstanding returns the number of operations under way. Completions come while there are any.
	Outstanding() int
	// String describes the machine's state in one line.
	String() string
	// Close closes the machine's regions. Operations under way continue until the host is closed.
	Close() error
}

// Want asks the driver to attach to a peer's region, because rdmanet's Attach may wait and a Poll
// may not.
type Want struct {
	Number uint64
	Peer   rdmanet.PeerID
	Region string
}
