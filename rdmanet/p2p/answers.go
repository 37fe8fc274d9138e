package p2p

import (
	"io"
	"net"
)

// answersBytes is the number of gathered bytes above which answers are sent. One more answer may
// then have been added, which gives the maximum, answersMax.
const (
	answersBytes = 128 << 10
	answersMax   = answersBytes + 2*responseSize + pieceMax
)

// answers gathers an agent's answers until they are sent.
type answers struct {
	to     pieceWriter
	same   response // requests with the same outcome, not yet in out
	out    []byte   // answers to send; reused
	cuts   []int    // where in out the bytes of a long read begin or end
	pieces net.Buffers
	rest   net.Buffers // the pieces that a write has not written yet
}

// end records the outcome of a request, together with others of the same outcome.
func (a *answers) end(word outcome) error {
	if a.same.count > 0 && (a.same.outcome != word || a.same.count == responsesMax) {
		a.settle()
	}
	a.same.outcome = word
	a.same.count++
	return a.bound()
}

// settle moves the answers that wait for more of the same outcome behind the others.
func (a *answers) settle() {
	if a.same.count > 0 {
		a.out = a.same.append(a.out)
		a.same.count = 0
	}
}

// begin answers a successful request with length bytes, which the caller fills in before it calls
// done.
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

// done completes an answer that begin started. With an outcome other than outcomeDone the bytes are
// left out.
func (a *answers) done(length int, word outcome) error {
	end := len(a.out)
	switch {
	case word != outcomeDone:
		a.out = a.out[:end-length-responseSize]
		return a.end(word)
	case length >= gatherMin: // a record of its own on a sealed connection
		a.cuts = append(a.cuts, end-length, end)
	}
	return a.bound()
}

// bound sends the answers if there are many.
func (a *answers) bound() error {
	if len(a.out) < answersBytes {
		return nil
	}
	return a.flush()
}

// flush sends all answers.
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

// pieceWriterTo returns w if it can write pieces, and else a wrapper that can.
func pieceWriterTo(w io.Writer) pieceWriter {
	if to, can := w.(pieceWriter); can {
		return to
	}
	return piecemeal{w}
}

// piecemeal writes pieces one at a time.
type piecemeal struct{ io.Writer }

func (p piecemeal) writePieces(pieces *net.Buffers) error {
	for _, piece := range *pieces {
		if _, err := p.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
