package p2p

import (
	"io"
	"net"
)

// answersBytes is how many bytes of answers wait at most before they go out; one answer more may
// stand behind them, which makes answersMax.
const (
	answersBytes = 128 << 10
	answersMax   = answersBytes + 2*responseSize + pieceMax
)

// answers is what an agent has to say, gathered until it is sent.
type answers struct {
	to     pieceWriter
	same   response // requests that came to the same end, not yet in out
	out    []byte   // reused
	cuts   []int    // where in out the bytes of a long read begin or end
	pieces net.Buffers
	rest   net.Buffers // what a write has left of pieces
}

// end tells how a request ended, together with those that ended the same way.
func (a *answers) end(word outcome) error {
	if a.same.count > 0 && (a.same.outcome != word || a.same.count == responsesMax) {
		a.settle()
	}
	a.same.outcome = word
	a.same.count++
	return a.bound()
}

// settle puts those that wait for more of their kind behind the others.
func (a *answers) settle() {
	if a.same.count > 0 {
		a.out = a.same.append(a.out)
		a.same.count = 0
	}
}

// begin answers a request that came to a good end with that many bytes, which the caller fills in
// before it calls done.
func (a *answers) begin(length int) []byte {
	a.settle()
	a.out = response{outcome: outcomeDone, count: 1, length: uint32(length)}.append(a.out)
	at := len(a.out)
	if cap(a.out)-at < length {
		larger := make([]byte, at, max(at+length, min(2*cap(a.out), answersMax)))
		copy(larger, a.out)
		a.out = larger
	}
	a.out = a.out[:at+length]
	return a.out[at:]
}

// done ends what begin began: with an outcome other than a good one the bytes are left out.
func (a *answers) done(length int, word outcome) error {
	end := len(a.out)
	switch {
	case word != outcomeDone:
		a.out = a.out[:end-length-responseSize]
		return a.end(word)
	case length >= gatherMin: // a record of its own, where records are
		a.cuts = append(a.cuts, end-length, end)
	}
	return a.bound()
}

// bound sends when there is much to send.
func (a *answers) bound() error {
	if len(a.out) < answersBytes {
		return nil
	}
	return a.flush()
}

// flush sends everything.
func (a *answers) flush() error {
	a.settle()
	if len(a.out) == 0 {
		return nil
	}
	from := 0
	a.pieces = a.pieces[:0]
	for _, cut := range a.cuts {
		if cut > from {
			a.pieces, from = append(a.pieces, a.out[from:cut]), cut
		}
	}
	if from < len(a.out) {
		a.pieces = append(a.pieces, a.out[from:])
	}
	a.rest = a.pieces
	err := a.to.writePieces(&a.rest)
	a.out, a.cuts = a.out[:0], a.cuts[:0]
	return err
}

// pieceWriterTo gives a writer's way to take pieces.
func pieceWriterTo(w io.Writer) pieceWriter {
	if to, can := w.(pieceWriter); can {
		return to
	}
	return piecemeal{w}
}

// piecemeal writes pieces one by one.
type piecemeal struct{ io.Writer }

func (p piecemeal) writePieces(pieces *net.Buffers) error {
	for _, piece := range *pieces {
		if _, err := p.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
