package api_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/doors"
)

const served = "HTTP/1.1 200 OK"

// stays checks that an address is served for a while.
func (f *flooder) stays(what string) {
	f.Helper()
	for range 20 {
		if line, err := f.call(); line != served {
			f.Fatalf("%s: %q, %v", what, line, err)
		}
	}
}

// returns waits until an address is served.
func (f *flooder) returns() {
	f.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if line, _ := f.call(); line == served {
			return
		}
		if time.Now().After(deadline) {
			f.Fatal("the address is not let in again")
		}
	}
}

// resets begins calls over HTTP/2 and takes them back, until the address is not served. The server
// may close a connection before, as it does with one on which too many calls wait.
func (f *flooder) resets() {
	f.Helper()
	call := headers("GetNode")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		f.speak(patience, true, takenBack(call))
		if line, _ := f.call(); line != served {
			return
		}
	}
	f.Fatal("the address is not put off")
}

// vainly opens connections without a request and closes them, until one is not accepted.
func (f *flooder) vainly() {
	f.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if connection, err := f.dial.DialContext(f.Context(), "tcp", f.to); err == nil {
			_ = connection.Close()
		}
		if line, _ := f.call(); line != served {
			return
		}
	}
	f.Fatal("the address is not put off")
}

// malformed posts requests that are large and not within their limits, over one connection, until
// the server refuses to read them.
func (f *flooder) malformed() {
	f.Helper()
	connection, err := f.dial.DialContext(f.Context(), "tcp", f.to)
	if err != nil {
		f.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(patience))
	body := bytes.Repeat([]byte{0x0a, 0}, 1<<20)
	answers := bufio.NewReader(connection)
	for range 100 {
		_, _ = fmt.Fprintf(connection, "POST /ledgerd.v1.LedgerService/SubmitMany HTTP/1.1\r\n"+
			"Host: localhost\r\nContent-Type: application/proto\r\nContent-Length: %d\r\n\r\n",
			len(body))
		go func() { _, _ = connection.Write(body) }()
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			f.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusBadRequest:
		case http.StatusTooManyRequests:
			if !answer.Close || !strings.Contains(string(text), "try again in") {
				f.Errorf("refused with %v, %s", answer.Header, text)
			}
			return
		default:
			f.Fatalf("a malformed request: %s %s", answer.Status, text)
		}
	}
	f.Error("the address is not put off")
}

// An address that offends in masses is put off and let in again. Others are served, and so are its
// connections on which it did nothing wrong.
func TestOffendersArePutOff(t *testing.T) {
	t.Parallel()
	for name, offend := range map[string]func(*flooder){
		"resets": (*flooder).resets, "connections": (*flooder).vainly,
		"requests": (*flooder).malformed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, apitest.Options{}, api.Options{PutOffTime: 2 * time.Second})
			stranger := newFlooder(t, "127.0.0.2", b.door.URL)
			stranger.dial.Timeout = 200 * time.Millisecond // nothing answers it later
			honest := &http.Client{Transport: &http.Transport{
				DialContext: stranger.dial.DialContext}}
			stillServed := func() {
				t.Helper()
				answer, err := honest.Post(b.door.URL+"/ledgerd.v1.LedgerService/GetNode",
					"application/json", strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				_, _ = io.Copy(io.Discard, answer.Body)
				if answer.StatusCode != http.StatusOK {
					t.Errorf("a call on a connection that did nothing wrong: %s", answer.Status)
				}
			}
			stillServed()
			// On a busy machine calls may fail for other reasons, and offences may be far apart.
			putOff := func() float64 { return b.metric("ledgerd_api_addresses_put_off_total") }
			for deadline := time.Now().Add(patience); putOff() == 0; {
				if time.Now().After(deadline) {
					t.Fatal("the address is not put off")
				}
				offend(stranger)
			}
			// The kernel accepts connections that the node refuses until it knows the address.
			for refused := time.Now(); ; {
				line, err := stranger.call()
				if err == nil {
					t.Errorf("a new connection of the address: %q, want none", line)
				}
				late := (net.Error)(nil)
				if err == nil || runtime.GOOS != "linux" ||
					errors.As(err, &late) && late.Timeout() {
					break
				}
				if time.Since(refused) > patience {
					t.Fatalf("a new connection of the address: %v, want silence of the kernel", err)
				}
			}
			stillServed()
			newFlooder(t, "127.0.0.3", b.door.URL).stays("a call from another address")
			if put := putOff(); put != 1 {
				t.Errorf("%v addresses are put off, want 1", put)
			}
			stranger.returns()
		})
	}
}

// until waits for the memory that is reserved for calls under way.
func (b *bank) until(is func(reserved float64) bool) {
	b.Helper()
	for deadline := time.Now().Add(patience); !is(b.metric("ledgerd_api_request_bytes")); {
		if time.Now().After(deadline) {
			b.Fatal("the calls do not begin or end")
		}
	}
}

// takenBack begins calls over one connection of HTTP/2, each with a part of its request, lets them
// run for longer than a young stream's time, and takes them back. It repeats this for each number.
func (b *bank) takenBack(from *flooder, part []byte, numbers ...int) {
	b.Helper()
	connection, err := from.dial.DialContext(b.Context(), "tcp", from.to)
	must(b.T, err)
	defer connection.Close()
	go func() { _, _ = io.Copy(io.Discard, connection) }()
	_, err = connection.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		frame(nil, frameSettings, 0, 0, nil)...))
	must(b.T, err)
	call, next, memory := headers("GetNode"), uint32(1), 0.
	for _, atOnce := range append([]int{1}, numbers...) {
		var begun, reset []byte
		for range atOnce {
			begun = frame(begun, frameHeaders, flagEndHeaders, next, call)
			if len(part) > 0 {
				begun = frame(begun, frameData, 0, next, part)
			}
			reset = frame(reset, frameReset, 0, next, []byte{0, 0, 0, 8})
			next += 2
		}
		_, err = connection.Write(begun)
		must(b.T, err)
		b.until(func(reserved float64) bool {
			if atOnce == 1 {
				memory = reserved // of one call
			}
			return reserved > 0 && reserved >= float64(atOnce)*memory
		})
		<-time.After(20 * time.Millisecond) // the patience of the client
		_, err = connection.Write(reset)
		must(b.T, err)
		b.until(func(reserved float64) bool { return reserved == 0 })
	}
}

// resetOffences returns how many streams count as taken back for nothing.
func (b *bank) resetOffences() float64 {
	return b.metric(`ledgerd_api_offences_total{kind="reset"}`)
}

// A call of which nothing arrived is no call that a client waited for, however old it is.
func TestCallsWithoutRequestAreOffences(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	b.takenBack(newFlooder(t, "127.0.0.2", b.door.URL), nil, 100)
	for deadline := time.Now().Add(patience); b.resetOffences() < 101; {
		if time.Now().After(deadline) {
			t.Fatalf("%v offences, want 101", b.resetOffences())
		}
	}
}

// A client that takes calls back after it waited for them, and one that asks for what there is not,
// are not put off.
func TestHonestClientsAreNotPutOff(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	client := newFlooder(t, "127.0.0.2", b.door.URL)
	b.takenBack(client, []byte{0}, 200, 200, 200, 200)
	for range 600 { // an account that is unknown
		answer, err := http.Post(b.door.URL+"/ledgerd.v1.LedgerService/GetAccount",
			"application/json", strings.NewReader(`{"account":"nobody:cash"}`))
		must(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	if counted := b.resetOffences(); counted > 0 {
		t.Errorf("%v calls that a client waited for are offences", counted)
	}
	client.stays("a call of a client that took calls back")
	newFlooder(t, "127.0.0.1", b.door.URL).stays("a call of a client with wrong questions")
}

// Over TLS, too, a connection that carries a call does not give way to a new one.
func TestConnectionsOverTLS(t *testing.T) {
	t.Parallel()
	certificate, key, _ := selfSigned(t)
	gates, err := doors.New(doors.Config{Certificate: certificate, Key: key})
	must(t, err)
	b := apitest.Serve(t, apitest.NewCluster(t, apitest.Options{}).Node(0),
		api.Options{Doors: gates, MaxConnections: 1, MaxConnectionsPerAddress: 1})
	address := strings.TrimPrefix(b.URL, "https://")
	config := &tls.Config{InsecureSkipVerify: true} // the test's own server
	busy, err := tls.Dial("tcp", address, config)
	must(t, err)
	defer busy.Close()
	_, err = io.WriteString(busy, "POST /ledgerd.v1.LedgerService/GetNode HTTP/1.1\r\n"+
		"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"+
		"Expect: 100-continue\r\nConnection: close\r\n\r\n")
	must(t, err)
	answers := bufio.NewReader(busy)
	line, err := answers.ReadString('\n') // the call runs and waits for its body
	if err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q, %v", line, err)
	}
	second, err := net.Dial("tcp", address)
	must(t, err)
	defer second.Close()
	_ = second.SetReadDeadline(time.Now().Add(patience))
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("the second connection is answered")
	}
	_, err = io.WriteString(busy, "{}")
	must(t, err)
	_ = busy.SetReadDeadline(time.Now().Add(patience))
	_, err = answers.ReadString('\n')
	must(t, err)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Errorf("the call that ran: %q, %v", line, err)
	}
}
