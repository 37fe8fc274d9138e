//go:build linux

package torture

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// measureVariable switches TestFloodCostsOthers on, and floodVariable makes the test binary a
// flooder: its value is the kind of flood and the address.
const (
	measureVariable = "LEDGERD_MEASURE"
	floodVariable   = "LEDGERD_FLOOD"
)

// floods are what a stranger does to a node, until its process is ended.
var floods = map[string]func(address string){
	"none":              func(string) { select {} },
	"nothing but work":  work,
	"large requests":    floodOfRequests,
	"connections":       floodOfConnections,
	"resets of streams": floodOfResets,
}

// kinds are the floods in the order in which they are measured.
var kinds = []string{"none", "nothing but work", "large requests", "connections",
	"resets of streams"}

// A measurement lasts for a window once the flood has run for a while, and is repeated.
const (
	turns    = 6
	settling = 500 * time.Millisecond
	window   = 3 * time.Second
)

// work takes the processor and sends nothing. It shows what the flooder's own work costs on the
// processor of the node, whatever the node does.
func work(string) {
	for range 2 {
		go func() {
			for sum := [sha256.Size]byte{}; ; {
				sum = sha256.Sum256(sum[:])
			}
		}()
	}
	select {}
}

// floodOfRequests posts requests that are small on the wire, or large, and grow in memory.
func floodOfRequests(address string) {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(bytes.Repeat([]byte{0x0a, 0}, 8<<20))
	_ = writer.Close()
	bodies := []struct{ kind, encoding, method string }{
		{"application/proto", "gzip", "Prepare"}, {"application/proto", "", "SubmitMany"},
		{"application/json", "", "SubmitMany"}}
	texts := [][]byte{packed.Bytes(), bytes.Repeat([]byte{0x0a, 0}, 4<<20),
		[]byte(`{"bundles":[` + strings.Repeat("{},", 2<<20) + `{}]}`)}
	for i := range 8 {
		go func() {
			for ; ; i++ {
				b := bodies[i%len(bodies)]
				request, err := http.NewRequest(http.MethodPost, "http://"+address+
					"/ledgerd.v1.LedgerService/"+b.method, bytes.NewReader(texts[i%len(texts)]))
				if err != nil {
					panic(err)
				}
				request.Header.Set("Content-Type", b.kind)
				if b.encoding != "" {
					request.Header.Set("Content-Encoding", b.encoding)
				}
				if answer, err := http.DefaultClient.Do(request); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
			}
		}()
	}
	select {}
}

// floodOfConnections opens connections as fast as it can, and keeps the last thousand.
func floodOfConnections(address string) {
	var open []net.Conn
	for {
		connection, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		if open = append(open, connection); len(open) > 1000 {
			_ = open[0].Close()
			open = open[1:]
		}
	}
}

// floodOfResets begins calls over HTTP/2 and takes them back at once [RFC 9113].
func floodOfResets(address string) {
	frame := func(kind, flags byte, stream uint32, payload ...byte) []byte {
		made := []byte{0, 0, byte(len(payload)), kind, flags}
		return append(binary.BigEndian.AppendUint32(made, stream), payload...)
	}
	path := "/ledgerd.v1.LedgerService/GetNode"
	call := append(append([]byte{0x83, 0x86, 0x04, byte(len(path))}, path...), 0x01, 9)
	call = append(append(append(call, "localhost"...), 0x0f, 0x10, 17), "application/proto"...)
	for range 4 {
		go func() {
			for {
				connection, err := net.DialTimeout("tcp", address, time.Second)
				if err != nil {
					continue
				}
				go func() { _, _ = io.Copy(io.Discard, connection) }()
				sent := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0)...)
				for stream := uint32(1); err == nil; {
					_, err = connection.Write(sent)
					for sent = sent[:0]; len(sent) < 16<<10; stream += 2 {
						sent = append(append(sent, frame(1, 4, stream, call...)...),
							frame(3, 0, stream, 0, 0, 0, 8)...)
					}
				}
				_ = connection.Close()
			}
		}()
	}
	select {}
}

// TestFlooder is the process of a flooder.
func TestFlooder(t *testing.T) {
	kind, address, is := strings.Cut(os.Getenv(floodVariable), "@")
	if !is {
		t.Skip("this is a process of TestFloodCostsOthers")
	}
	floods[kind](address)
}

// flood runs a flooder on one processor, with the least priority, since it shares the processor
// with a node. It returns the function that ends it.
func flood(t *testing.T, kind, address string, processor int) (end func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	flooder := exec.Command("nice", "-n", "19", self, "-test.run", "^TestFlooder$")
	flooder.Env = append(os.Environ(), floodVariable+"="+kind+"@"+address,
		programVariable+"="+program)
	if err := flooder.Start(); err != nil {
		t.Fatal(err)
	}
	pin(t, flooder.Process.Pid, processor)
	return func() {
		_ = flooder.Process.Kill()
		_ = flooder.Wait()
	}
}

// pin lets all threads of a process, and those that they start, run on one processor only.
func pin(t *testing.T, process, processor int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(processor)
	for pinned := map[string]bool{}; ; {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", process))
		if err != nil {
			t.Fatal(err)
		}
		before := len(pinned)
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || pinned[thread.Name()] {
				continue
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
				t.Fatal(err)
			}
			pinned[thread.Name()] = true
		}
		if len(pinned) == before {
			return // each thread was found pinned, and so were those that it started
		}
	}
}

// processors returns two different processors that this process may use.
func processors(t *testing.T) (first, last int) {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	if set.Count() < 2 {
		t.Skip("one processor only")
	}
	first = -1
	for i := range 1024 {
		if set.IsSet(i) {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	return first, last
}

// processorTicks returns the hundredths of a second that a process has had a processor.
func processorTicks(t *testing.T, process int) (ticks int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		t.Fatal(err)
	}
	// The name, in brackets, is the second field; the user's and the system's are 14 and 15.
	_, after, _ := strings.Cut(string(text), ") ")
	for _, field := range strings.Fields(after)[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// kindsMeasured returns the kinds that the variable names, after none; all if it is 1.
func kindsMeasured(t *testing.T) []string {
	t.Helper()
	named := os.Getenv(measureVariable)
	if named == "1" {
		return kinds
	}
	chosen := []string{"none"}
	for kind := range strings.SplitSeq(named, ",") {
		if floods[kind] == nil {
			t.Fatalf("%s=%s: want 1, or some of %q", measureVariable, named, kinds)
		}
		chosen = append(chosen, kind)
	}
	return chosen
}

// median returns the upper median, and sorts the numbers.
func median(numbers []float64) float64 {
	slices.Sort(numbers)
	return numbers[len(numbers)/2]
}

// TestFloodCostsOthers measures what a flood on node 0 costs the clients of the other nodes. The
// flooder shares one processor with node 0, as if on its machine, and has the least priority there.
// The other nodes and the clients share another processor, so that they lose only what node 0 makes
// them wait. The test judges nothing: run it with LEDGERD_MEASURE=1 on a machine that does nothing
// else.
func TestFloodCostsOthers(t *testing.T) {
	if os.Getenv(measureVariable) == "" {
		t.Skipf("set %s=1 to measure", measureVariable)
	}
	s := newShard(t, 4)
	s.start(s.all()...)
	s.ordering(s.all()...)
	flooded, others := processors(t)
	pin(t, os.Getpid(), others)
	for i := range s.homes {
		processor := others
		if i == 0 {
			processor = flooded
		}
		pin(t, s.processes[i].command.Process.Pid, processor)
	}
	var posted atomic.Int64
	var stop atomic.Bool
	var clients sync.WaitGroup
	for i := range 6 {
		p := s.newParty(fmt.Sprintf("party-%d", i), []string{"issuer", "cash"}, 1+i%3)
		clients.Go(func() {
			for !stop.Load() {
				status, err := p.nodes.Post(t.Context(), []client.Key{p.Key},
					p.transfer("issuer", "cash", 1), ledgerdv1.Level_LEVEL_DURABLE)
				if err == nil && client.Reached(status, ledgerdv1.Level_LEVEL_DURABLE) {
					posted.Add(1)
				}
			}
		})
	}
	flooding := kindsMeasured(t)
	rates, used := map[string][]float64{}, map[string][]float64{}
	for range turns { // in turns, since the machine changes
		for _, kind := range flooding {
			end := flood(t, kind, s.homes[0].Config.API.Listen, flooded)
			time.Sleep(settling)
			before, ticks := posted.Load(), processorTicks(t, s.processes[0].command.Process.Pid)
			time.Sleep(window)
			rates[kind] = append(rates[kind], float64(posted.Load()-before)/window.Seconds())
			used[kind] = append(used[kind], float64(processorTicks(t,
				s.processes[0].command.Process.Pid)-ticks)/window.Seconds())
			end()
			time.Sleep(settling)
		}
	}
	for _, kind := range flooding {
		t.Logf("flood of %s: %.0f transactions a second, %.0f %% of those without a flood; the "+
			"flooded node took %.0f %% of its processor", kind, median(rates[kind]),
			100*median(rates[kind])/median(rates["none"]), median(used[kind]))
	}
	stop.Store(true)
	clients.Wait()
}
