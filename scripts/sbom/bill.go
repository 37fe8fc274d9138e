package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// release is a binary of a release.
type release struct {
	name, version, commit, platform string
	binary                          []byte
	time                            time.Time
}

// The types below are the parts of CycloneDX 1.6 that a bill uses.
type (
	document struct {
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Serial       string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		Scope      string     `json:"scope,omitempty"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licences   []licence  `json:"licenses"`
		URL        string     `json:"purl"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	// licence has either an identifier or an expression of several.
	licence struct {
		Licence    *licenceID `json:"license,omitempty"`
		Expression string     `json:"expression,omitempty"`
	}
	licenceID struct {
		ID string `json:"id"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref string   `json:"ref"`
		On  []string `json:"dependsOn,omitempty"`
	}
)

// bill returns the bill of materials of a release. Its serial number depends on the binary.
func bill(r release, components []component) document {
	sum := sha256.Sum256(r.binary)
	serial := sum[:16]
	serial[6], serial[8] = serial[6]&0x0f|0x80, serial[8]&0x3f|0x80 // a UUID of version 8
	whole := component{Type: "application", Ref: r.name, Name: r.name, Version: r.version,
		Hashes:   []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(r.binary))}},
		Licences: licencesOf("Apache-2.0"),
		URL:      "pkg:golang/" + repository + "@" + url.PathEscape(r.version),
		Properties: []property{{"ledgerd:platform", r.platform},
			{"ledgerd:commit", r.commit}},
	}
	on := dependency{Ref: whole.Ref}
	every := []dependency{}
	for _, c := range components {
		on.On = append(on.On, c.Ref)
		every = append(every, dependency{Ref: c.Ref})
	}
	return document{Format: "CycloneDX", Spec: "1.6", Version: 1,
		Serial: fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", serial[:4], serial[4:6], serial[6:8],
			serial[8:10], serial[10:]),
		Metadata:   metadata{r.time.Format(time.RFC3339), whole},
		Components: components, Dependencies: append([]dependency{on}, every...)}
}

const repository = "github.com/ledgerd/ledgerd"

// componentsOf returns the Go modules that a binary says it consists of, and the npm packages in
// its explorer.
func componentsOf(build *buildinfo.BuildInfo, modules []*module,
	packages []npmPackage) ([]component, error) {
	known := map[string]*module{}
	for _, m := range modules {
		known[m.path] = m
	}
	std := known["std"]
	if want := strings.TrimPrefix(build.GoVersion, "go"); std.version != want {
		return nil, fmt.Errorf("the binary was built by Go %s, and go list is that of %s", want,
			std.version)
	}
	list := []component{goComponent(std, nil)}
	for _, dep := range build.Deps {
		m := known[dep.Path]
		switch {
		case dep.Replace != nil:
			return nil, fmt.Errorf("the binary has a replacement of %s", dep.Path)
		case m == nil || m.version != dep.Version:
			return nil, fmt.Errorf("the binary has %s %s, and the source here does not", dep.Path,
				dep.Version)
		}
		// The checksum of go.sum is the SHA-256 of the module's list of files.
		encoded, found := strings.CutPrefix(dep.Sum, "h1:")
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if !found || err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("%s: %q is no checksum of a module", dep.Path, dep.Sum)
		}
		list = append(list, goComponent(m, []hash{{"SHA-256", hex.EncodeToString(sum)}}))
	}
	if len(list) != len(modules) {
		return nil, fmt.Errorf("the binary has %d modules, and the source here %d: it was built "+
			"from another source or with other build tags", len(list), len(modules))
	}
	for _, p := range packages {
		at := "pkg:npm/" + strings.ReplaceAll(p.name, "@", "%40") + "@" + p.version
		list = append(list, component{Type: "library", Ref: at, Name: p.name, Version: p.version,
			Scope: "required", Hashes: []hash{{"SHA-512", p.sum}}, Licences: licencesOf(p.licence),
			URL: at})
	}
	return list, nil
}

func goComponent(m *module, hashes []hash) component {
	at := "pkg:golang/" + m.path + "@" + strings.ReplaceAll(m.version, "+", "%2B")
	return component{Type: "library", Ref: at, Name: m.path, Version: m.version, Scope: "required",
		Hashes: hashes, Licences: licencesOf(m.licence), URL: at}
}

// licencesOf returns an SPDX expression in CycloneDX's form.
func licencesOf(expression string) []licence {
	if strings.Contains(expression, " ") {
		return []licence{{Expression: expression}}
	}
	return []licence{{Licence: &licenceID{expression}}}
}

func encode(to io.Writer, d document) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(d)
}
