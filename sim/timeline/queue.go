package timeline

// Queue returns events by instant, and events of one instant in the order of Push. The zero value
// is an empty queue. T is an instant of virtual time.
type Queue[T ~int64, E any] struct {
	// heap is a binary heap, the next event first.
	heap     []entry[T, E]
	sequence uint64
}

// entry is a scheduled event. sequence breaks ties.
type entry[T ~int64, E any] struct {
	at       T
	sequence uint64
	event    E
}

func (a *entry[T, E]) before(b *entry[T, E]) bool {
	return a.at < b.at || (a.at == b.at && a.sequence < b.sequence)
}

// Len returns the number of scheduled events.
func (q *Queue[T, E]) Len() int { return len(q.heap) }

// First returns the instant of the next event. There must be one.
func (q *Queue[T, E]) First() T { return q.heap[0].at }

// Push schedules an event.
func (q *Queue[T, E]) Push(at T, event E) {
	q.sequence++
	q.push(entry[T, E]{at: at, sequence: q.sequence, event: event})
}

func (q *Queue[T, E]) push(own entry[T, E]) {
	q.heap = append(q.heap, own)
	child := len(q.heap) - 1
	for child > 0 {
		parent := (child - 1) / 2
		if !own.before(&q.heap[parent]) {
			break
		}
		q.heap[child] = q.heap[parent]
		child = parent
	}
	q.heap[child] = own
}

// Pop removes and returns the next event and its instant. There must be one.
func (q *Queue[T, E]) Pop() (T, E) {
	first := q.pop()
	return first.at, first.event
}

func (q *Queue[T, E]) pop() entry[T, E] {
	heap := q.heap
	first := heap[0]
	last := len(heap) - 1
	own := heap[last]
	heap[last] = entry[T, E]{} // it may hold pointers
	heap = heap[:last]
	q.heap = heap
	if last == 0 {
		return first
	}
	parent := 0
	for {
		child := 2*parent + 1
		if child >= last {
			break
		}
		if child+1 < last && heap[child+1].before(&heap[child]) {
			child++
		}
		if !heap[child].before(&own) {
			break
		}
		heap[parent] = heap[child]
		parent = child
	}
	heap[parent] = own
	return first
}

// Each calls visit with each scheduled event. The order has no meaning, but is always the same.
func (q *Queue[T, E]) Each(visit func(E)) {
	for i := range q.heap {
		visit(q.heap[i].event)
	}
}
