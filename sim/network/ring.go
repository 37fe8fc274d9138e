package network

// ring is a first-in-first-out queue that reuses its memory.
type ring[T any] struct {
	items []T // its length is a power of two
	first int
	count int
}

func (r *ring[T]) push(item T) {
	if r.count == len(r.items) {
		grown := make([]T, max(8, 2*len(r.items)))
		for i := range r.count {
			grown[i] = r.items[(r.first+i)&(len(r.items)-1)]
		}
		r.items, r.first = grown, 0
	}
	r.items[(r.first+r.count)&(len(r.items)-1)] = item
	r.count++
}

// peek returns the oldest item. There must be one.
func (r *ring[T]) peek() *T { return &r.items[r.first] }

// pop removes and returns the oldest item. There must be one.
func (r *ring[T]) pop() T {
	var none T
	item := r.items[r.first]
	r.items[r.first] = none // it may hold a frame
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.count--
	return item
}
