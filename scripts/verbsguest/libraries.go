//go:build linux

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// libraryFolders are Debian's folders of shared libraries.
var libraryFolders = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64",
	"/usr/lib64", "/lib", "/usr/lib"}

// librariesOf finds all shared libraries that programs need, directly or indirectly, and the
// dynamic loaders of the programs.
func librariesOf(programs []string) ([]string, error) {
	var found []string
	seen := map[string]bool{}
	take := func(path string) {
		if !seen[path] {
			seen[path] = true
			found = append(found, path)
		}
	}
	look := func(path string) error {
		file, err := elf.Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer func() { _ = file.Close() }() // opened for reading only
		for _, part := range file.Progs {
			if part.Type != elf.PT_INTERP {
				continue
			}
			name := make([]byte, part.Filesz)
			if _, err := part.ReadAt(name, 0); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			take(strings.TrimRight(string(name), "\x00"))
		}
		needed, err := file.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, name := range needed {
			library, err := findLibrary(name)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			take(library)
		}
		return nil
	}
	for _, program := range programs {
		if err := look(program); err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(found); i++ { // found grows meanwhile
		if err := look(found[i]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func findLibrary(name string) (string, error) {
	for _, folder := range libraryFolders {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no library %s in %s", name, strings.Join(libraryFolders, ", "))
}

// rxeProvider finds the library that libibverbs loads for Soft-RoCE devices.
func rxeProvider() ([]string, error) {
	found, err := filepath.Glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("libibverbs has no part for Soft-RoCE here: install Debian's " +
			"package ibverbs-providers")
	}
	return found, nil
}
