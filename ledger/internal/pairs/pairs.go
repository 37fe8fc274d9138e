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
}

// Sum returns the SHA-256 of both messages.
func (p *Pair) Sum(a, b []byte) (first, second [sha256.Size]byte) {
	blocks := blocksOf(a)
	if !supported || blocks > maxBlocks || blocksOf(b) != blocks {
		return sha256.Sum256(a), sha256.Sum256(b)
	}
	pad(p.messages[0][:blocks*blockSize], a)
	pad(p.messages[1][:blocks*blockSize], b)
	var hashes [2][sha256.Size]byte
	hashPair(&hashes, &p.messages[0][0], &p.messages[1][0], blocks)
	return hashes[0], hashes[1]
}

// blocksOf returns how many blocks a message has once it is padded.
func blocksOf(message []byte) int { return (len(message) + tail + blockSize - 1) / blockSize }

// pad writes a message with the padding of SHA-256 to to, which has the size of its blocks.
func pad(to, message []byte) {
	end := copy(to, message)
	to[end] = 1 << 7
	clear(to[end+1 : len(to)-8])
	binary.BigEndian.PutUint64(to[len(to)-8:], uint64(len(message))*8)
}
