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

// suite is the way in which a direct connection is sealed.
type suite uint32

const (
	suitePlain suite = iota // not sealed: a trusted network
	// AES-256-GCM, twice as fast as Noise's ChaCha20-Poly1305 on processors with instructions for
	// it.
	suiteAESGCM
)

// keyBytes is the size of the secret behind a sealed connection, and of the key of each direction.
const keyBytes = 32

// The labels from which the keys of the two directions are derived.
const (
	labelDialler  = "ledgerd direct connection: dialler"
	labelAcceptor = "ledgerd direct connection: acceptor"
)

// newAEAD derives the key of one direction from the ticket and returns its cipher. Every connection
// has its own secret, used for no other, so counters serve as nonces.
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

// A record consists of the plaintext's length, which is authenticated too, and the sealed text. The
// record's number is its nonce.
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

// next returns the nonce of the next record.
func (n *nonce) next() []byte {
	binary.BigEndian.PutUint64(n.bytes[4:], n.count)
	n.count++
	return n.bytes[:]
}

// sealer is the sending half of a sealed connection. Only one goroutine may use it at a time.
type sealer struct {
	aead  cipher.AEAD
	nonce nonce
	out   []byte // records on their way; reused
}

// flushBytes is the number of sealed bytes after which they are written.
const flushBytes = 2 * recordSealedMax

// write seals the pieces and writes them, with as few system calls as possible.
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

// sealAll returns the sealed pieces, which stay valid until the next call of any method.
func (s *sealer) sealAll(pieces [][]byte) []byte {
	s.out = s.out[:0]
	for _, piece := range pieces {
		for ; len(piece) > 0; piece = piece[min(len(piece), recordBytesMax):] {
			s.seal(piece[:min(len(piece), recordBytesMax)])
		}
	}
	return s.out
}

func (s *sealer) seal(text []byte) {
	at := len(s.out)
	s.out = binary.BigEndian.AppendUint32(s.out, uint32(len(text)))
	s.out = s.aead.Seal(s.out, s.nonce.next(), text, s.out[at:at+recordHeaderBytes])
}

// openerBytesMin is the initial size of an opener's buffer. The buffer doubles as long as reads
// fill it, up to openerBytesMax.
const (
	openerBytesMin = 4 << 10
	openerBytesMax = 4 * recordSealedMax
)

// opener is the receiving half of a sealed connection. Only one goroutine may use it at a time.
type opener struct {
	aead   cipher.AEAD
	nonce  nonce
	buffer []byte // bytes from the network; reused
	from   int    // buffer[from:to] is not yet opened
	to     int
	text   []byte // the text of a record larger than its reader's buffer; reused
	rest   []byte // the part of text not yet handed out
}

// read opens the next record directly into b if it fits, and otherwise hands it out in parts. The
// caller never gets bytes that are not authentic.
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

// fill reads until want bytes are available to open.
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

// makeRoom moves the unopened bytes to the beginning of the buffer. It makes a larger buffer if
// want bytes do not fit or if the last reads filled the buffer.
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

// seal turns a direct connection into a sealed one: it seals writes and opens reads.
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

// Read implements io.Reader. Only one goroutine may call it at a time.
func (c *directConn) Read(b []byte) (int, error) {
	if c.opener == nil {
		return c.wire.Read(b)
	}
	return c.opener.read(c.wire, b)
}

// Write implements io.Writer.
func (c *directConn) Write(b []byte) (int, error) {
	if c.sealer == nil {
		return c.wire.Write(b)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.sealer.write(c.wire, [][]byte{b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// writePieces implements pieceWriter.
func (c *directConn) writePieces(pieces *net.Buffers) error {
	if c.out != nil {
		return c.out.writeAll(*pieces)
	}
	if c.sealer == nil && len(*pieces) == 1 {
		_, err := c.socket.Write((*pieces)[0])
		return err
	}
	if c.sealer == nil {
		_, err := pieces.WriteTo(c.socket)
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.sealer.write(c.wire, *pieces)
}
