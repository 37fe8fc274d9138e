package api

import (
	_ "embed" // the description
	"net/http"
)

// openAPI describes the calls as HTTP and JSON, in OpenAPI 3.1. TestReferenceOpenAPI makes it from
// the descriptors and comments of the .proto files; releases contain it, too.
//
//go:embed openapi.json
var openAPI []byte

// serveDescription serves it. It says nothing about the ledger, so every caller gets it.
func serveDescription(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache") // the next version of the node has another one
	_, _ = w.Write(openAPI)
}
