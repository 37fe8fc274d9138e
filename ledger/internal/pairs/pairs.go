package pairs

import (
	"crypto/sha256"
	"encoding/binary"
)

const (
	blockSize = sha256.BlockSize
	maxBlocks = 4
	// tail is how many bytes follow a message at least: a mark, and its length in bits.
	tail = 1 + 8
)

// Pair is the memory for two padded messages. The zero value is ready, and may be used again. One
// goroutine at a time may use it.
type Pair struct {
	messages [2][maxBlocks * blockSize]byte
	// size is that of the messages in the memory, if they are padded for it; else 0.
	size int
}

// maxRoom bounds the messages for which Room has memory.
const maxRoom = maxBlocks*blockSize - tail

// Room returns the memory for two messages of one size, 1 to maxRoom. The caller writes them, and
// then calls SumRoom. So they are not copied, and padded once for all messages of this size.
func (p *Pair) Room(size int) (first, second []byte) {
	if p.size != size {
		for i := range p.messages {
			padAfter(p.messages[i][:blocksFor(size)*blockSize], size)
		}
		p.size = size
	}
	return p.messages[0][:size:size], p.messages[1][:size:size]
}

// SumRoom returns the SHA-256 of both messages in the memory that Room returned.
func (p *Pair) SumRoom() (first, second [sha256.Size]byte) {
	if !supported {
		return sha256.Sum256(p.messages[0][:p.size]), sha256.Sum256(p.messages[1][:p.size])
	}
	var hashes [2][sha256.Size]byte
	hashPair(&hashes, &p.messages[0][0], &p.messages[1][0], blocksFor(p.size))
	return hashes[0], hashes[1]
}

// Sum returns the SHA-256 of both messages.
func (p *Pair) Sum(a, b []byte) (first, second [sha256.Size]byte) {
	blocks := blocksFor(len(a))
	if !supported || blocks > maxBlocks || blocksFor(len(b)) != blocks {
		return sha256.Sum256(a), sha256.Sum256(b)
	}
	p.size = 0
	pad(p.messages[0][:blocks*blockSize], a)
	pad(p.messages[1][:blocks*blockSize], b)
	var hashes [2][sha256.Size]byte
	hashPair(&hashes, &p.messages[0][0], &p.messages[1][0], blocks)
	return hashes[0], hashes[1]
}

// SumAfter returns the SHA-256 of both messages, each after the prefix.
func (p *Pair) SumAfter(prefix string, a, b []byte) (first, second [sha256.Size]byte) {
	blocks := blocksFor(len(prefix) + len(a))
	if blocks > maxBlocks || blocksFor(len(prefix)+len(b)) != blocks {
		return sumAfter(prefix, a), sumAfter(prefix, b)
	}
	p.size = 0
	for i, message := range [2][]byte{a, b} {
		to := p.messages[i][:blocks*blockSize]
		size := copy(to, prefix)
		padAfter(to, size+copy(to[size:], message))
	}
	if !supported {
		return sha256.Sum256(p.messages[0][:len(prefix)+len(a)]),
			sha256.Sum256(p.messages[1][:len(prefix)+len(b)])
	}
	var hashes [2][sha256.Size]byte
	hashPair(&hashes, &p.messages[0][0], &p.messages[1][0], blocks)
	return hashes[0], hashes[1]
}

func sumAfter(prefix string, message []byte) (sum [sha256.Size]byte) {
	hash := sha256.New()
	hash.Write([]byte(prefix))
	hash.Write(message)
	hash.Sum(sum[:0])
	return sum
}

// blocksFor returns how many blocks a message of a size has once it is padded.
func blocksFor(size int) int { return (size + tail + blockSize - 1) / blockSize }

// pad writes a message with the padding of SHA-256 to to, which has the size of its blocks.
func pad(to, message []byte) {
	padAfter(to, copy(to, message))
}

// padAfter writes the padding that follows a message of a size.
func padAfter(to []byte, size int) {
	to[size] = 1 << 7
	clear(to[size+1 : len(to)-8])
	binary.BigEndian.PutUint64(to[len(to)-8:], uint64(size)*8)
}
