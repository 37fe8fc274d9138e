package route

import (
	"testing"

	"connectrpc.com/connect"
)

// The goroutines of subscriptions to the book are bounded, and those that ended make room.
func TestSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	var w watches
	var ends []func()
	for {
		end, err := w.admit(1000)
		if err != nil {
			if connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Error(err)
			}
			break
		}
		ends = append(ends, end)
	}
	if len(ends) != maxFollowers/1000 {
		t.Errorf("%d subscriptions", len(ends))
	}
	ends[0]()
	if _, err := w.admit(1000); err != nil {
		t.Error(err)
	}
	if _, err := w.admit(1000); err == nil {
		t.Error("there is room for one too many")
	}
}
