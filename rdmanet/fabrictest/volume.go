package fabrictest

// Slow is what a Fabric has beside its methods where connecting and moving bytes cost much, as on a device that is emulated: the cases that are about volume do with less of it.
type Slow interface {
	// Less is what the volume is divided by, at least 1.
	Less() int
}

// volume is count, or what a slow fabric does of it.
func volume(f Fabric, count int) int {
	if slow, ok := f.(Slow); ok {
		return count / slow.Less()
	}
	return count
}
