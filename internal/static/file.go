// Package static serves files that the binary embeds, from memory. A File gets its entity tags when
// it is made, and is compressed when it is asked for first, because most nodes are never asked:
//
//	f := static.New("text/css; charset=utf-8", content, false)
//	static.Secure(w.Header(), policy)
//	f.ServeHTTP(w, r)
//
// Invariants: serving reads no disk, and a File is safe for concurrent use. A file whose name has a
// hash of its content may be cached for ever. A browser asks for any other file again on each use,
// and gets 304 while its tag is the same.
package static

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// File is one file, ready to be sent.
type File struct {
	contentType string
	plain       []byte
	gzipped     func() []byte // empty if compression does not pay
	tag         string        // strong entity tag of the plain form, quotes included
	gzippedTag  string
	immutable   bool
}

// New makes a file. An immutable file has a name that changes with its content.
func New(contentType string, content []byte, immutable bool) *File {
	sum := sha256.Sum256(content)
	tag := hex.EncodeToString(sum[:16])
	return &File{
		contentType: contentType,
		plain:       content,
		gzipped:     sync.OnceValue(func() []byte { return compress(content) }),
		tag:         `"` + tag + `"`,
		gzippedTag:  `"` + tag + `-gzip"`,
		immutable:   immutable,
	}
}

// compress returns nothing if compression does not pay.
func compress(content []byte) []byte {
	var buffer bytes.Buffer
	writer, err := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	if err == nil {
		_, err = writer.Write(content)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil || buffer.Len() >= len(content)*9/10 {
		return nil
	}
	return buffer.Bytes()
}

// Content returns the content, which the caller must not change.
func (f *File) Content() []byte { return f.plain }

// ServeHTTP answers GET and HEAD with the file, compressed if the client accepts that, or with 304
// if the client has it.
func (f *File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", f.contentType)
	if f.immutable {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		header.Set("Cache-Control", "no-cache")
	}
	content, tag := f.plain, f.tag
	if gzipped := f.gzipped(); len(gzipped) > 0 {
		header.Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Get("Accept-Encoding")) {
			content, tag = gzipped, f.gzippedTag
			header.Set("Content-Encoding", "gzip")
		}
	}
	header.Set("ETag", tag)
	if matches(r.Header.Get("If-None-Match"), tag) {
		header.Del("Content-Encoding")
		header.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(content) // a client that went away needs no answer
}

// NotFound answers 404 with the file as the page that says so.
func (f *File) NotFound(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNotFound)
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.plain) // a client that went away needs no answer
	}
}

// Secure sets the headers that keep a page to its policy, its own origin and its own type.
func Secure(header http.Header, policy string) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// acceptsGzip reads an Accept-Encoding header: gzip must be named, and not with a quality of zero.
func acceptsGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		coding, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		_, quality, found := strings.Cut(strings.ReplaceAll(parameters, " ", ""), "q=")
		if !found {
			return true
		}
		value, err := strconv.ParseFloat(quality, 64)
		return err == nil && value > 0
	}
	return false
}

// matches reads an If-None-Match header, weakly as RFC 9110 section 13.1.2 has it.
func matches(ifNoneMatch, tag string) bool {
	for part := range strings.SplitSeq(ifNoneMatch, ",") {
		candidate := strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if candidate == "*" || candidate == tag {
			return true
		}
	}
	return false
}
