package abci

import (
	"sync"
	"sync/atomic"
	"time"
)

// The states of a Feed.
const (
	feedBeginning = "beginning" // the application was not reached yet
	feedFollowing = "following" // it gets each block
	feedWaiting   = "waiting"   // it has not answered a call about a block for some time
	feedRetrying  = "retrying"  // something failed, and is tried again
)

// Feed says how the application gets its blocks. It is the adapter's own part of status.
type Feed struct {
	State string `json:"state"`
	// Since is when the state began; of waiting, when the call began.
	Since time.Time `json:"since"`
	// Call is what the application is asked, about the block of the height.
	Call   string `json:"call,omitempty"`
	Height int64  `json:"height,string,omitempty"`
	Error  string `json:"error,omitempty"`
	// NotKept says why the adapter's file could not be written, if it is behind for that reason.
	NotKept string `json:"not_kept,omitempty"`
}

// teller hands notices to Options.Report, one at a time, and keeps what status says of the feed.
type teller struct {
	report func(Notice) // may be nil
	slow   time.Duration
	feed   atomic.Pointer[Feed]
	mutex  sync.Mutex // held while a notice is handed over, and while the feed changes
}

func newTeller(options *Options) *teller {
	t := &teller{report: options.Report, slow: time.Duration(options.Config.Timing.Slow)}
	t.feed.Store(&Feed{State: feedBeginning, Since: time.Now().UTC()})
	return t
}

// tell hands over a notice of the feed.
func (t *teller) tell(notice Notice) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	next := *t.feed.Load()
	switch notice.Event {
	case "begin", "block":
		next.State, next.Error, next.Call, next.Height = feedFollowing, "", "", 0
	case "retry":
		next.State, next.Error = feedRetrying, notice.Error
	case "unkept":
		next.NotKept = notice.Error
	}
	if next.State != t.feed.Load().State {
		next.Since = time.Now().UTC()
	}
	t.feed.Store(&next)
	t.hand(notice)
}

// kept takes back that the adapter's file could not be written.
func (t *teller) kept() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	next := *t.feed.Load()
	next.NotKept = ""
	t.feed.Store(&next)
}

// hand hands over a notice. Its caller has the mutex.
func (t *teller) hand(notice Notice) {
	if t.report != nil {
		t.report(notice)
	}
}

// asks begins a call about a block that may take as long as it takes. Once it is slow, it says so:
// again after twice the time, and so on. The function that it returns ends it.
func (t *teller) asks(name string, height int64) (answered func(error)) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	began, before := time.Now(), t.feed.Load()
	over, told, pause := false, false, t.slow
	seconds := func() float64 { return time.Since(began).Seconds() }
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		if over {
			return
		}
		told = true
		t.feed.Store(&Feed{State: feedWaiting, Since: began.UTC(), Call: name, Height: height,
			NotKept: before.NotKept})
		t.hand(Notice{Event: "waiting", Height: height, Call: name, Seconds: seconds()})
		pause *= 2
		timer.Reset(pause)
	})
	return func(err error) {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		over = true
		timer.Stop()
		if !told {
			return
		}
		t.feed.Store(before)
		if err == nil {
			t.hand(Notice{Event: "answered", Height: height, Call: name, Seconds: seconds()})
		}
	}
}
