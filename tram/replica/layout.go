package replica

import (
	"strconv"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
)

// The names of a replica's regions. The buffer of client c is clientRegion followed by c.
const (
	boardRegion  = "tram/board"
	logRegion    = "tram/log"
	parentRegion = "tram/parent"
	clientRegion = "tram/client/"
)

func clientRegionName(client order.ServerID) string {
	return clientRegion + strconv.FormatUint(uint64(client), 10)
}

// A row of a board has wordHalt besides the words that all boards have. One more word is free.
const (
	wordHalt = protected.WordsShared // not 0: the process leads, and excluded the board's owner
	rowWords = protected.WordsShared + 2
)

func (o *Options) bufferRing() protected.Ring {
	return protected.BufferRing(o.BufferSlots, o.messageMax())
}

// The purposes of posts to children's replicas and of clients' posts.
const (
	postTaken   protected.Kind = iota // reads protected.HeadTaken
	postTicket                        // reads protected.HeadTicket
	postMessage                       // writes a message without its number
	postEntry                         // writes a message, or the rest of it
)
