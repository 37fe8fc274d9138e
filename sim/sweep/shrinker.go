package sweep

import "github.com/ledgerd/ledgerd/order"

// Shrinker holds the smallest run so far that breaks one property first. The simulator decides
// which smaller runs to try, in which order. O describes a run, and R is its result.
type Shrinker[O, R any] struct {
	// Options and Result are the smallest run so far.
	Options O
	Result  R
	// Left is how many more runs Try may make.
	Left int

	run      func(O) (R, error)
	broken   func(R) order.Property
	property order.Property
}

// NewShrinker returns a shrinker of a failing run. run makes a run, and broken returns the property
// that a run breaks first, or "".
func NewShrinker[O, R any](options O, result R, run func(O) (R, error),
	broken func(R) order.Property) *Shrinker[O, R] {
	return &Shrinker[O, R]{Options: options, Result: result, run: run, broken: broken,
		property: broken(result)}
}

// Try makes a run, and keeps it as the smallest if it breaks the same property first. It returns
// whether it does. If no runs are left, it does nothing and returns false.
func (s *Shrinker[O, R]) Try(options O) bool {
	if s.Left <= 0 {
		return false
	}
	s.Left--
	result, err := s.run(options)
	if err != nil || s.broken(result) != s.property {
		return false
	}
	s.Options, s.Result = options, result
	return true
}
