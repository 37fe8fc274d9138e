package replica

import "github.com/ledgerd/ledgerd/protected"

// The purposes of posts.
const (
	postTaken   protected.Kind = iota // reads protected.HeadTaken
	postTicket                        // reads protected.HeadTicket
	postTrailer                       // reads an entry's trailer
	postMessage                       // reads an entry's message
	postErase                         // erases an entry's mark
	postEntry                         // writes an entry
)
