package p2p

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// suite says how a direct connection is sealed.
type suite uint32

const (
	suitePlain suite = iota // not at all: a trusted network
	// AES-256-GCM: twice as fast as Noise's ChaCha20-Poly1305 with the instructions that processors
	// have for it
	suiteAESGCM
)

// keyBytes is the size of the secret behind a sealed connection, and of the key of each direction.
const keyBytes = 32

// The labels that the directions' keys are derived under.
const (
	labelDialler  = "ledgerd direct connection: dialler"
	labelAcceptor = "ledgerd direct connection: acceptor"
)

// newAEAD derives the key of one direction from what libp2p's stream carried, and gives its cipher.
// Every connection has a secret of its own, used for no other, so counters serve as nonces.
func (t ticket) newAEAD(label string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, t.secret[:], t.token[:], label, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return cipher.NewGCM(block)
}

// A record is the plaintext's length, which is authenticated too, and the sealed text. A record's
// number is its nonce.
const (
	recordHeaderBytes = 4
	recordBytesMax    = 64 << 10 // of plaintext
	recordTagBytes    = 16
	recordSealedMax   = recordHeaderBytes + recordBytesMax + recordTagBytes
)

// nonce counts the records of one direction.
type nonce struct {
	bytes [12]byte
	count uint64
}

// next gives the nonce of the next record.
func (n *nonce) next() []byte {
	binary.BigEndian.PutUint64(n.bytes[4:], n.count)
	n.count++
	return n.bytes[:]
}

// sealer is the sending half of a sealed connection. For one goroutine at a time.
type sealer struct {
	aead  cipher.AEAD
	nonce nonce
	out   []byte // reused: records on their way
}

// flushBytes is how much is sealed before it is written.
const flushBytes = 2 * recordSealedMax

// write seals the pieces and writes them, with as few system calls as there can be.
func (s *sealer) write(to io.Writer, pieces [][]byte) error {
	s.out = s.out[:0]
	for _, piece := range pieces {
		for len(piece) > 0 {
			n := min(len(piece), recordBytesMax)
			s.seal(piece[:n])
			piece = piece[n:]
			if len(s.out) < flushBytes {
				continue
			}
			if _, err := to.Write(s.out); err != nil {
				return err
			}
			s.out = s.out[:0]
		}
	}
	if len(s.out) == 0 {
		return nil
	}
	_, err := to.Write(s.out)
	return err
}

func (s *sealer) seal(text []byte) {
	at := len(s.out)
	s.out = binary.BigEndian.AppendUint32(s.out, uint32(len(text)))
	s.out = s.aead.Seal(s.out, s.nonce.next(), text, s.out[at:at+recordHeaderBytes])
}

// openerBytesMin is what an opener's buffer starts with; it doubles, as long as the wire fills it,
// up to openerBytesMax.
const (
	openerBytesMin = 4 << 10
	openerBytesMax = 4 * recordSealedMax
)

// opener is the receiving half of a sealed connection. For one goroutine at a time.
type opener struct {
	aead   cipher.AEAD
	nonce  nonce
	buffer []byte // reused: what came from the wire
	from   int    // buffer[from:to] is not yet opened
	to     int
	text   []byte // reused: of a record that is larger than what its reader asked for
	rest   []byte // what is left of text
}

// read opens the next record right into b where it fits, and hands out parts of it where it does
// not. What is not authentic never gets into the hands of the caller.
func (o *opener) read(wire io.Reader, b []byte) (int, error) {
	if len(o.rest) > 0 {
		n := copy(b, o.rest)
		o.rest = o.rest[n:]
		return n, nil
	}
	if len(b) == 0 {
		return 0, nil
	}
	if err := o.fill(wire, recordHeaderBytes); err != nil {
		return 0, err
	}
	header := o.buffer[o.from : o.from+recordHeaderBytes]
	size := int(binary.BigEndian.Uint32(header))
	if size == 0 || size > recordBytesMax {
		return 0, fmt.Errorf("%w: sealed record of %d bytes", errProtocol, size)
	}
	sealed := recordHeaderBytes + size + recordTagBytes
	if err := o.fill(wire, sealed); err != nil {
		return 0, unexpected(err)
	}
	record := o.buffer[o.from : o.from+sealed]
	into := b[:0:len(b)]
	if size > len(b) {
		into = o.text[:0]
	}
	text, err := o.aead.Open(into, o.nonce.next(), record[recordHeaderBytes:],
		record[:recordHeaderBytes])
	if err != nil {
		return 0, fmt.Errorf("%w: sealed record: %w", errProtocol, err)
	}
	o.from += sealed
	if size <= len(b) {
		return size, nil
	}
	o.text = text
	n := copy(b, text)
	o.rest = text[n:]
	return n, nil
}

// fill reads until that many bytes are there to open.
func (o *opener) fill(wire io.Reader, want int) error {
	for o.to-o.from < want {
		if o.from == o.to {
			o.from, o.to = 0, 0
		}
		if o.from+want > len(o.buffer) {
			o.makeRoom(want)
		}
		n, err := wire.Read(o.buffer[o.to:])
		o.to += n
		if err != nil && o.to-o.from < want {
			if err == io.EOF && o.to > o.from {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// makeRoom moves what is not yet opened to the buffer's beginning, into a larger one if that much
// does not fit or if the wire gives more than fits.
func (o *opener) makeRoom(want int) {
	buffer := o.buffer
	if full := o.to == len(buffer); want > len(buffer) || full && len(buffer) < openerBytesMax {
		size := max(2*len(buffer), openerBytesMin)
		for size < want {
			size *= 2
		}
		buffer = make([]byte, min(size, openerBytesMax))
	}
	o.to = copy(buffer, o.buffer[o.from:o.to])
	o.from, o.buffer = 0, buffer
}

// seal makes a direct connection a sealed one: what is written is sealed and what is read was.
func (c *directConn) seal(admitted ticket, dialled bool) error {
	own, other := labelAcceptor, labelDialler
	if dialled {
		own, other = other, own
	}
	seal, err := admitted.newAEAD(own)
	if err != nil {
		return err
	}
	open, err := admitted.newAEAD(other)
	if err != nil {
		return err
	}
	c.sealer, c.opener = &sealer{aead: seal}, &opener{aead: open}
	return nil
}

// Read implements io.Reader; for one goroutine at a time.
func (c *directConn) Read(b []byte) (int, error) {
	if c.opener == nil {
		return c.tcp.Read(b)
	}
	return c.opener.read(c.tcp, b)
}

// Write implements io.Writer.
func (c *directConn) Write(b []byte) (int, error) {
	if c.sealer == nil {
		return c.tcp.Write(b)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.sealer.write(c.tcp, [][]byte{b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// writePieces implements pieceWriter.
func (c *directConn) writePieces(pieces *net.Buffers) error {
	if c.sealer == nil && len(*pieces) == 1 {
		_, err := c.tcp.Write((*pieces)[0])
		return err
	}
	if c.sealer == nil {
		_, err := pieces.WriteTo(c.tcp)
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.sealer.write(c.tcp, *pieces)
}
