package main

import (
	"encoding/binary"
	"hash/fnv"
)

// The world is a field of side by side cells. Its edges meet.
const (
	side  = 64
	cells = side * side
)

// directions are the moves that a player can make, as steps from cell to cell.
var directions = [...]int{1, cells - 1, side, cells - side}

// world is a server's copy of the world. A cell holds one player, so the order of moves matters: of
// two players that enter the same cell, the second stays where it is.
type world struct {
	place []uint16    // of each player
	taken [cells]bool // by a player
}

// newWorld spreads the players over the field.
func newWorld(players int) *world {
	w := &world{place: make([]uint16, players)}
	for player := range w.place {
		at := player * cells / players
		w.place[player], w.taken[at] = uint16(at), true
	}
	return w
}

// move moves a player to the next cell in a direction, if that cell is free.
func (w *world) move(player uint32, direction int) {
	from := w.place[player]
	to := (int(from) + direction) % cells
	if !w.taken[to] {
		w.taken[from], w.taken[to] = false, true
		w.place[player] = uint16(to)
	}
}

// digest returns a number that differs for worlds that differ, but for a chance of 2^-64.
func (w *world) digest() uint64 {
	hash := fnv.New64a()
	for _, at := range w.place {
		hash.Write(binary.LittleEndian.AppendUint16(nil, at))
	}
	return hash.Sum64()
}
