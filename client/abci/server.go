package abci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The bounds of the RPC.
const (
	maxBodyBytes = 1 << 20
	maxCalls     = 100 // of one JSON-RPC batch
)

// The codes of JSON-RPC, with the messages that CometBFT has for them.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeMethod   = -32601
	codeParams   = -32602
	codeInternal = -32603
)

// failure is an error of JSON-RPC.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    string `json:"data,omitempty"`
}

func fail(code int, format string, arguments ...any) *failure {
	message := map[int]string{codeParse: "Parse error. Invalid JSON",
		codeRequest: "Invalid Request", codeMethod: "Method not found",
		codeParams: "Invalid params", codeInternal: "Internal error"}[code]
	return &failure{code, message, fmt.Sprintf(format, arguments...)}
}

// rpcRequest is a request of JSON-RPC.
type rpcRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// rpcAnswer is an answer of JSON-RPC.
type rpcAnswer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *failure        `json:"error,omitempty"`
}

// server serves the part of CometBFT's RPC that clients post and query with.
type server struct {
	options     *Options
	teller      *teller
	application *application
	results     *results
	pool        *pool
	calls       chan struct{} // has one element for each call under way
	life        context.Context
}

func newServer(options *Options, teller *teller, application *application, results *results,
	pool *pool) *server {
	return &server{options: options, teller: teller, application: application,
		results: results, pool: pool,
		calls: make(chan struct{}, options.Config.Pool.Clients)}
}

// serve serves until the context ends. Calls that are under way then fail.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	s.life = ctx
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 20,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(bounded) != nil {
			_ = server.Close() // what still hangs has no more time
		}
	})
	err := server.Serve(listener)
	if stop() {
		return err
	}
	<-stopped
	return nil
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(to http.ResponseWriter, request *http.Request) {
	if origin := request.Header.Get("Origin"); origin != "" {
		// A page of a browser could post with the adapter's key.
		if parsed, err := url.Parse(origin); err != nil || parsed.Host != request.Host {
			http.Error(to, "this server answers no pages of other sites", http.StatusForbidden)
			return
		}
	}
	request.Body = http.MaxBytesReader(to, request.Body, maxBodyBytes)
	name := strings.Trim(request.URL.Path, "/")
	// What asks the application for nothing is answered at once, also when all other calls wait.
	if !methods[name].atOnce {
		select {
		case s.calls <- struct{}{}:
			defer func() { <-s.calls }()
		default:
			to.Header().Set("Retry-After", "1")
			http.Error(to, "too many calls are under way: try again",
				http.StatusServiceUnavailable)
			return
		}
	}
	switch {
	case name != "":
		s.serveURI(to, request, name)
	case request.Method == http.MethodPost:
		s.serveJSON(to, request)
	default:
		to.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintf(to, "The ABCI adapter of ledgerd. Methods: %s\n",
			strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
	}
}

// writeAnswer writes answers: one, or an array.
func writeAnswer(to http.ResponseWriter, status int, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		http.Error(to, err.Error(), http.StatusInternalServerError)
		return
	}
	to.Header().Set("Content-Type", "application/json")
	to.WriteHeader(status)
	_, _ = to.Write(append(text, '\n')) // the client is gone otherwise
}

// serveURI serves GET /METHOD?NAME=VALUE.
func (s *server) serveURI(to http.ResponseWriter, request *http.Request, name string) {
	known, found := methods[name]
	if !found {
		http.NotFound(to, request)
		return
	}
	answer := rpcAnswer{Version: "2.0", ID: json.RawMessage("-1")}
	status := http.StatusOK
	if err := request.ParseForm(); err != nil {
		answer.Error = fail(codeParams, "%v", err)
	} else if given, err := uriParams(known.params, request.Form); err != nil {
		answer.Error = fail(codeParams, "%v", err)
	} else {
		answer.Result, answer.Error = s.call(request.Context(), known, given)
	}
	if answer.Error != nil {
		status = http.StatusInternalServerError
	}
	writeAnswer(to, status, answer)
}

// serveJSON serves JSON-RPC: one request, or a batch.
func (s *server) serveJSON(to http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		large := (*http.MaxBytesError)(nil)
		if errors.As(err, &large) {
			err = fmt.Errorf("a request of more than %d bytes", maxBodyBytes)
		}
		writeAnswer(to, http.StatusBadRequest, rpcAnswer{Version: "2.0",
			Error: fail(codeRequest, "%v", err)})
		return
	}
	var requests []rpcRequest
	batch := bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("["))
	if batch {
		err = json.Unmarshal(body, &requests)
	} else {
		requests = make([]rpcRequest, 1)
		err = json.Unmarshal(body, &requests[0])
	}
	if err == nil && len(requests) > maxCalls {
		err = fmt.Errorf("a batch of %d calls, and %d are allowed", len(requests), maxCalls)
	}
	if err != nil {
		writeAnswer(to, http.StatusInternalServerError, rpcAnswer{Version: "2.0",
			Error: fail(codeParse, "%v", err)})
		return
	}
	var answers []rpcAnswer
	for _, each := range requests {
		if len(each.ID) == 0 || bytes.Equal(each.ID, []byte("null")) {
			continue // a notification gets no answer, and as with CometBFT it does nothing
		}
		answers = append(answers, s.answer(request.Context(), each))
	}
	switch {
	case len(answers) == 0:
		to.WriteHeader(http.StatusOK)
	case batch && len(answers) > 1:
		writeAnswer(to, http.StatusOK, answers)
	default: // CometBFT answers a batch of one so, too
		writeAnswer(to, http.StatusOK, answers[0])
	}
}

func (s *server) answer(ctx context.Context, request rpcRequest) rpcAnswer {
	answer := rpcAnswer{Version: "2.0", ID: request.ID}
	known, found := methods[request.Method]
	if !found {
		answer.Error = fail(codeMethod, "the adapter has no method %.60q: its root lists those "+
			"that it has", request.Method)
		return answer
	}
	given, err := jsonParams(known.params, request.Params)
	if err != nil {
		answer.Error = fail(codeParams, "%v", err)
		return answer
	}
	answer.Result, answer.Error = s.call(ctx, known, given)
	return answer
}

func (s *server) call(ctx context.Context, known method, given params) (any, *failure) {
	result, err := known.serve(s, ctx, given)
	if err != nil {
		if s.life.Err() != nil {
			err = errStopped
		}
		return nil, fail(codeInternal, "%v", err)
	}
	return result, nil
}
