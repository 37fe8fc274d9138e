package sim

import (
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// asking is what a process asks its peers for.
type asking struct {
	// memory has the contents of the rounds that the last engine voted for.
	memory map[[32]byte]*content
	// number identifies questions.
	number int
	blocks *question
	rounds *question
}

// question is one effect that needs answers of peers, asked one after the other.
type question struct {
	number int
	// at is the index of the asked peer, and ticks how long ago it was asked.
	at    int
	ticks int
	fetch shard.Fetch
	round shard.FetchRound
}

const (
	// answerTicks is how many ticks the process waits for an answer.
	answerTicks = 8
	// blocksMax is the maximum number of blocks in an answer.
	blocksMax = 256
)

// fetch fetches and appends the blocks of a peer.
func (p *process) fetch(e shard.Fetch) {
	p.sim.moment(strayMet, p.self)
	p.asking.blocks = &question{fetch: e, at: -1}
	p.askNext()
}

// askNext asks the next peer for blocks, if there is one.
func (p *process) askNext() {
	q := p.asking.blocks
	q.at++
	if q.at >= len(q.fetch.From) {
		p.fetched(shard.Fetched{Reached: -1})
		return
	}
	p.askBlocks()
}

func (p *process) askBlocks() {
	q := p.asking.blocks
	p.asking.number++
	q.number, q.ticks = p.asking.number, 0
	l := &peerMessage{kind: letterAsk, number: q.number, height: q.fetch.Limit,
		blocks: p.chain.blocks}
	if source := &q.fetch.From[q.at]; !q.fetch.Vouches(source) {
		l.hash = q.fetch.Base
	}
	p.sim.post(p.self, q.fetch.From[q.at].Server, l)
}

func (p *process) fetched(answer shard.Fetched) {
	p.asking.blocks = nil
	p.answer(answer)
}

// answerAsk sends the blocks that another server lacks, or reports where the chains part.
func (p *process) answerAsk(from order.ServerID, l *peerMessage) {
	own := p.chain.blocks
	common := min(len(own), len(l.blocks)) - 1
	for own[common] != l.blocks[common] {
		common--
	}
	answer := &peerMessage{kind: letterBlocks, number: l.number, common: uint64(common)}
	wanted := l.hash != [32]byte{} // a base that this chain may not have
	switch {
	case wanted && (uint64(len(own)) <= l.height || own[l.height].hash != l.hash):
	case common == len(l.blocks)-1:
		last := min(len(own), common+1+blocksMax)
		if l.height != 0 {
			last = min(last, int(l.height)+1)
		}
		if last > common+1 {
			answer.blocks = own[common+1 : last]
		}
	case common < len(own)-1:
		answer.forked = true
	}
	p.sim.post(p.self, from, answer)
}

// receiveBlocks handles an answer. The blocks are executed as far as the disk has room.
func (p *process) receiveBlocks(from order.ServerID, l *peerMessage) {
	q := p.asking.blocks
	if q == nil || q.number != l.number || q.fetch.From[q.at].Server != from {
		return
	}
	if l.forked {
		p.fetched(shard.Fetched{Reached: -1, Forked: true, Parted: q.at, Common: l.common})
		return
	}
	for _, b := range l.blocks {
		p.executing.queue = append(p.executing.queue, work{block: b})
	}
	q.ticks = -1 << 20 // the answer is here; the disk may delay it
	p.then(func() {
		source := q.fetch.From[q.at]
		head := p.chain.head()
		switch {
		case head.height == source.Height && head.hash == source.Hash:
			p.fetched(shard.Fetched{Reached: q.at})
		case len(l.blocks) == 0 && q.at+1 < len(q.fetch.From):
			p.askNext()
		case len(l.blocks) == 0 || q.fetch.Limit != 0 && head.height >= q.fetch.Limit ||
			head.height >= source.Height:
			p.fetched(shard.Fetched{Reached: -1})
		default:
			p.askBlocks()
		}
	})
}

// fetchRound stores the content of a round on the disk, and asks peers for it if necessary.
func (p *process) fetchRound(e shard.FetchRound) {
	if c := p.find(e.ID); c != nil {
		p.keepRound(e.ID, c)
		return
	}
	p.asking.rounds = &question{round: e, at: -1}
	p.wantNext()
}

func (p *process) keepRound(hash [32]byte, c *content) {
	if !p.disk.keep(hash, c) {
		p.answer(shard.RoundMissing{ID: hash, Reason: fullDisk})
		return
	}
	p.answer(shard.RoundHeld{ID: hash})
}

// wantNext asks the next peer for the content of a round.
func (p *process) wantNext() {
	q := p.asking.rounds
	for q.at++; q.at < len(q.round.From); q.at++ {
		if q.round.From[q.at] != p.self {
			break
		}
	}
	if q.at >= len(q.round.From) {
		p.asking.rounds = nil
		p.answer(shard.RoundMissing{ID: q.round.ID})
		return
	}
	p.asking.number++
	q.number, q.ticks = p.asking.number, 0
	p.sim.post(p.self, q.round.From[q.at], &peerMessage{kind: letterWant, number: q.number,
		hash: q.round.ID})
}

// answerWant sends the content of a round.
func (p *process) answerWant(from order.ServerID, l *peerMessage) {
	p.sim.post(p.self, from, &peerMessage{kind: letterContent, number: l.number, hash: l.hash,
		content: p.find(l.hash)})
}

func (p *process) receiveContent(from order.ServerID, l *peerMessage) {
	q := p.asking.rounds
	if q == nil || q.number != l.number {
		return
	}
	if l.content == nil {
		p.wantNext()
		return
	}
	p.asking.rounds = nil
	p.memory[l.hash] = l.content
	p.keepRound(l.hash, l.content)
}

// askAgain gives up on peers that do not answer.
func (p *process) askAgain() {
	if q := p.asking.blocks; q != nil {
		if q.ticks++; q.ticks > answerTicks {
			p.askNext()
		}
	}
	if q := p.asking.rounds; q != nil {
		if q.ticks++; q.ticks > answerTicks {
			p.wantNext()
		}
	}
}
