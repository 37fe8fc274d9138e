package calls

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// An answer says whether another member may have carried out the call.
func TestUnsure(t *testing.T) {
	t.Parallel()
	answers := func(status int, retry, unsure bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if retry {
				w.Header().Set(HeaderRetry, "true")
			}
			if unsure {
				w.Header().Set(HeaderUnsure, "true")
			}
			w.WriteHeader(status)
		})
	}
	full := answers(http.StatusServiceUnavailable, true, false)
	doubt := answers(http.StatusServiceUnavailable, true, true)
	refuse := answers(http.StatusBadRequest, false, false)
	for name, c := range map[string]struct {
		absent        bool         // the fabric does not know the first member
		first, second http.Handler // nil: it takes the call, and hangs
		want          bool
	}{
		"one hangs, one is busy":          {false, nil, full, true},
		"one hangs, one refuses":          {false, nil, refuse, true},
		"one hangs, one takes it":         {false, nil, named("second"), true},
		"one is unsure, one is busy":      {false, doubt, full, true},
		"one is unsure, one refuses":      {false, doubt, refuse, true},
		"both are busy":                   {false, full, full, false},
		"one is busy, one refuses":        {false, full, refuse, false},
		"one is not there, one is busy":   {true, nil, full, false},
		"one is not there, one takes it":  {true, nil, named("second"), false},
		"one is not there, one is unsure": {true, nil, doubt, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := memory.NewNetwork()
			for id, serve := range map[string]http.Handler{"member-1": c.first,
				"member-2": c.second} {
				switch {
				case id == "member-1" && c.absent:
				case serve == nil:
					mute(t, memoryHost(t, network, "member-1"))
				case id == "member-1":
					start(t, memoryHost(t, network, "member-1"), serve, nil)
				default:
					start(t, memoryHost(t, network, "member-2"), serve, nil)
				}
			}
			host := memoryHost(t, network, asker).(*memory.Host)
			if c.absent {
				if err := host.SetMembers(map[rdmanet.PeerID]string{"member-2": ""}); err != nil {
					t.Fatal(err)
				}
			}
			asking := start(t, host, named("asker"),
				func(config *Config) { config.Silence = 200 * time.Millisecond })
			request, err := http.NewRequestWithContext(within(t, patience), http.MethodPost,
				URL(1)+"/path", strings.NewReader("a payment"))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := asking.Transport(1).RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.Header.Get(HeaderUnsure) == "true"; got != c.want {
				t.Errorf("status %d, %v", answer.StatusCode, answer.Header)
			}
		})
	}
}
