package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bundleName is the list of npm packages in the built explorer. The explorer's build writes it; it
// lists a package if the bundle contains code of it.
const bundleName = "explorer/dist/licences.json"

// npmPackage is one npm package with code in the explorer.
type npmPackage struct {
	name, version string
	licence       string // as an SPDX expression
	text          string // the licence's text, if the package contains it
	sum           string // SHA-512 of its archive, in hexadecimal
}

// lockEntry is one package of package-lock.json, by its folder.
type lockEntry struct{ Version, Integrity string }

// bundled returns the npm packages in the built explorer, sorted by name. Their checksums come from
// the lock file, which has to list the same versions.
func bundled(root string) ([]npmPackage, error) {
	var built []struct{ Name, Version, Identifier, Text string }
	if err := readJSON(filepath.Join(root, bundleName), &built); err != nil {
		return nil, err
	}
	var lock struct{ Packages map[string]lockEntry }
	if err := readJSON(filepath.Join(root, "explorer/package-lock.json"), &lock); err != nil {
		return nil, err
	}
	if len(built) == 0 {
		return nil, fmt.Errorf("%s lists no package", bundleName)
	}
	var list []npmPackage
	for _, p := range built {
		sum, err := lockedSum(lock.Packages, p.Name, p.Version)
		if err != nil {
			return nil, err
		}
		if p.Identifier == "" {
			return nil, fmt.Errorf("the npm package %s has no licence", p.Name)
		}
		list = append(list, npmPackage{name: p.Name, version: p.Version,
			licence: strings.Trim(p.Identifier, "()"), text: p.Text, sum: sum})
	}
	slices.SortFunc(list, func(a, b npmPackage) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// lockedSum returns the SHA-512 of a package's archive by the lock file.
func lockedSum(lock map[string]lockEntry, name, version string) (string, error) {
	for folder, entry := range lock {
		if entry.Version != version || !strings.HasSuffix("/"+folder, "/node_modules/"+name) {
			continue
		}
		encoded, found := strings.CutPrefix(entry.Integrity, "sha512-")
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if !found || err != nil || len(sum) != 64 {
			return "", fmt.Errorf("package-lock.json: %s: %q is no SHA-512", folder,
				entry.Integrity)
		}
		return hex.EncodeToString(sum), nil
	}
	return "", fmt.Errorf("package-lock.json does not have %s %s, which the built explorer "+
		"contains: run `npm run build` in explorer and commit dist", name, version)
}

func readJSON(name string, into any) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
