package api_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// The types and flags of HTTP/2's frames [RFC 9113, section 6] that the floods use.
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameContinuation = 9
	flagEndHeaders    = 4
)

// frame appends a frame. Who floods sends a million of them, so they are not allocated one by one.
func frame(to []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	to = append(to, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(to, stream), payload...)
}

// headers returns the header block of a call: literal fields of HPACK [RFC 7541].
func headers(method string) []byte {
	path := "/ledgerd.v1.LedgerService/" + method
	block := append([]byte{0x83, 0x86, 0x04, byte(len(path))}, path...)
	block = append(append(block, 0x01, 9), "localhost"...)
	return append(append(block, 0x0f, 0x10, 17), "application/proto"...)
}

// nextFrames appends the frames of a flood's step i.
type nextFrames func(to []byte, i int) []byte

// takenBack makes each step a call and its end [RFC 9113, section 6.4].
func takenBack(call []byte) nextFrames {
	return func(to []byte, i int) []byte {
		stream := uint32(2*i + 1)
		to = frame(to, frameHeaders, flagEndHeaders, stream, call)
		return frame(to, frameReset, 0, stream, []byte{0, 0, 0, 8})
	}
}

// speak opens a connection of HTTP/2 and writes frames until the server closes it, or until the
// time is over. It returns how many bytes it wrote.
func (f *flooder) speak(duration time.Duration, reads bool, next nextFrames) int {
	connection, err := f.dial.DialContext(f.Context(), "tcp", f.to)
	if err != nil {
		f.Error(err)
		return 0
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(duration))
	if reads {
		go func() { _, _ = io.Copy(io.Discard, connection) }()
	}
	sent, _ := connection.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		frame(nil, frameSettings, 0, 0, nil)...))
	many := make([]byte, 0, 32<<10)
	for i := 0; ; {
		for many = many[:0]; len(many) < 16<<10; i++ {
			many = next(many, i)
		}
		n, err := connection.Write(many)
		if sent += n; err != nil {
			return sent
		}
	}
}

// heap collects garbage and returns the bytes of live objects.
func heap() uint64 {
	runtime.GC()
	return live()
}

// live returns the bytes of the objects that the last collection of garbage kept. What waits to be
// collected does not count: on a busy machine that is many times as much.
func live() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Floods of frames of HTTP/2 shut no other client out, and leave nothing behind.
func TestFloodsOfFrames(t *testing.T) {
	// Without a limit, so that no flood ends because its address is put off.
	b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: -1})
	call := headers("GetNode")
	client := newFlooder(t, "127.0.0.3", b.door.URL)
	fields := bytes.Repeat([]byte{0, 1, 'a', 1, 'b'}, 200)
	ping := func(to []byte, _ int) []byte {
		return frame(to, framePing, 0, 0, []byte{0, 0, 0, 0, 0, 0, 0, 0})
	}
	settings := func(to []byte, _ int) []byte {
		return frame(to, frameSettings, 0, 0, []byte{0, 1, 0, 0, 16, 0})
	}
	for _, flood := range []struct {
		name  string
		reads bool
		next  nextFrames
	}{
		{"resets", true, takenBack(call)},
		{"streams that stay open", true, func(to []byte, i int) []byte {
			return frame(to, frameHeaders, flagEndHeaders, uint32(2*i+1), call)
		}},
		{"pings", true, ping},
		{"pings without reading", false, ping},
		{"settings", true, settings},
		{"settings without reading", false, settings},
		{"headers without end", true, func(to []byte, i int) []byte {
			if i == 0 {
				return frame(to, frameHeaders, 0, 1, call)
			}
			return frame(to, frameContinuation, 0, 1, fields)
		}},
	} {
		t.Run(flood.name, func(t *testing.T) {
			before := heap()
			stranger := newFlooder(t, "127.0.0.2", b.door.URL)
			ended := make(chan int)
			const parallel = 4
			for range parallel {
				go func() { ended <- stranger.speak(time.Second, flood.reads, flood.next) }()
			}
			calls, sent, most := 0, 0, uint64(0)
			for running := parallel; running > 0; {
				select {
				case bytes := <-ended:
					sent += bytes
					running--
				default:
					if line, err := client.call(); line != "HTTP/1.1 200 OK" {
						t.Errorf("a call during the flood: %q, %v", line, err)
					}
					calls++
					most = max(most, live())
				}
			}
			t.Logf("%d KiB sent, %d calls of another client, heap %d KiB above before", sent>>10,
				calls, (int64(most)-int64(before))>>10)
			if calls == 0 {
				t.Error("no call of another client ended during the flood")
			}
			after := heap()
			for end := time.Now().Add(2 * time.Minute); after > before+32<<20 &&
				time.Now().Before(end); after = heap() {
				// The server still works off what it got. Each look collects garbage, and takes
				// processor time from it.
				time.Sleep(200 * time.Millisecond)
			}
			if most > before+128<<20 || after > before+32<<20 {
				t.Errorf("the heap grew from %d to %d MiB, and %d are left", before>>20, most>>20,
					after>>20)
			}
		})
	}
}

// cutOff writes bytes one by one, with pauses, and returns when the server ended the connection.
func (f *flooder) cutOff(beginning string, pause time.Duration) time.Duration {
	f.Helper()
	connection, err := f.dial.DialContext(f.Context(), "tcp", f.to)
	if err != nil {
		f.Fatal(err)
	}
	defer connection.Close()
	begin := time.Now()
	_, _ = io.WriteString(connection, beginning)
	answer := make(chan struct{})
	go func() {
		_ = connection.SetReadDeadline(begin.Add(patience))
		_, err := io.ReadAll(connection)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			f.Error("the server keeps a slow connection")
		}
		close(answer)
	}()
	for {
		select {
		case <-answer:
			return time.Since(begin)
		case <-time.After(pause):
			_, _ = connection.Write([]byte("a"))
		}
	}
}

// Headers and bodies that arrive byte by byte are cut off. A body that keeps the least rate is not,
// however long it takes.
func TestSlowRequests(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxHeaderTime: 300 * time.Millisecond,
		MaxBodyPatience: 300 * time.Millisecond, MaxIdleTime: 300 * time.Millisecond})
	stranger := newFlooder(t, "127.0.0.2", b.door.URL)
	for name, beginning := range map[string]string{
		"header": "POST /ledgerd.v1.LedgerService/Submit HTTP/1.1\r\nHost: localhost\r\nX: ",
		"body":   unfinishedCall,
	} {
		if took := stranger.cutOff(beginning, 20*time.Millisecond); took < 250*time.Millisecond {
			t.Errorf("a slow %s is cut off after %v already", name, took)
		}
	}
	if took := stranger.cutOff("", time.Hour); took < 250*time.Millisecond {
		t.Errorf("an idle connection is cut off after %v already", took)
	}

	// This one has more patience, since a busy machine may not send anything for a while.
	patient := newBank(t, apitest.Options{}, api.Options{MaxBodyPatience: 1500 * time.Millisecond})
	reader, writer := net.Pipe()
	go func() {
		defer writer.Close()
		for range 40 { // two seconds and more, at four times the least rate
			time.Sleep(50 * time.Millisecond)
			if _, err := io.WriteString(writer, strings.Repeat(" ", 6<<10)); err != nil {
				return
			}
		}
		_, _ = io.WriteString(writer, "{}")
	}()
	answer, err := http.Post(patient.door.URL+"/ledgerd.v1.LedgerService/Prepare",
		"application/json", reader)
	must(t, err)
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if !strings.Contains(string(text), "0 transactions") {
		t.Errorf("a long request that keeps the rate: %d %s", answer.StatusCode, text)
	}
}
