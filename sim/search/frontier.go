package search

// frontier holds the visited states that are not expanded yet, each with its number and its depth.
type frontier struct {
	width       int
	newestFirst bool
	blocks      [][]uint32
	// read is the offset of the oldest state in the first block.
	read int
	// turn counts the states taken. chance is the state of the generator that draws where to
	// continue.
	turn   int
	chance uint64
	spare  []uint32
	taken  []uint32
}

const (
	// blockStates is how many states a block holds.
	blockStates = 1 << 12
	// diveStates is how many of the newest states are taken before the search goes back to an older
	// one.
	diveStates = 1 << 10
)

func (f *frontier) more() bool {
	if len(f.blocks) == 0 {
		return false
	}
	return len(f.blocks) > 1 || f.read < len(f.blocks[0])
}

func (f *frontier) put(state []uint32, own, depth uint32) {
	last := len(f.blocks) - 1
	if last < 0 || len(f.blocks[last]) == blockStates*f.width {
		block := f.spare
		f.spare = nil
		if block == nil {
			block = make([]uint32, 0, blockStates*f.width)
		}
		f.blocks = append(f.blocks, block[:0])
		last++
	}
	f.blocks[last] = append(append(f.blocks[last], state...), own, depth)
}

// take removes and returns the next state. The slice is valid until the next call.
func (f *frontier) take() (state []uint32, own, depth uint32) {
	if f.newestFirst {
		return f.takeNewest()
	}
	block := f.blocks[0]
	entry := block[f.read : f.read+f.width]
	f.taken = append(f.taken[:0], entry...)
	if f.read += f.width; f.read == len(block) {
		f.spare = block
		f.blocks = f.blocks[1:]
		f.read = 0
	}
	return f.split()
}

func (f *frontier) takeNewest() (state []uint32, own, depth uint32) {
	last := len(f.blocks) - 1
	block := f.blocks[last]
	newest := block[len(block)-f.width:]
	if f.turn++; f.turn%diveStates == 0 {
		// Swap with some older state. SplitMix64 [Steele, Lea and Flood 2014] draws it.
		f.chance += 0x9e3779b97f4a7c15
		z := f.chance
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		other := f.blocks[z%uint64(len(f.blocks))]
		at := int(z>>32%uint64(len(other)/f.width)) * f.width
		for i := range f.width {
			newest[i], other[at+i] = other[at+i], newest[i]
		}
	}
	f.taken = append(f.taken[:0], newest...)
	if f.blocks[last] = block[:len(block)-f.width]; len(f.blocks[last]) == 0 {
		f.spare = f.blocks[last]
		f.blocks = f.blocks[:last]
	}
	return f.split()
}

func (f *frontier) split() (state []uint32, own, depth uint32) {
	return f.taken[:f.width-2], f.taken[f.width-2], f.taken[f.width-1]
}
