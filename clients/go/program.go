package vellumtest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// embedded is this platform's compressed program. Releases of the module set it, the source tree does not.
var embedded []byte

// findProgram returns the program to run.
func findProgram() (string, error) {
	if named := os.Getenv("VELLUM_BINARY"); named != "" {
		found, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("the program of VELLUM_BINARY was not found: %w", err)
		}
		return found, nil
	}
	if len(embedded) > 0 {
		return unpacked()
	}
	if found, err := exec.LookPath("vellum"); err == nil {
		return found, nil
	}
	return "", fmt.Errorf("the program vellum for %s/%s is neither in this module nor on the path: set VELLUM_BINARY to its path, "+
		"or use the module of a release, which contains the program", runtime.GOOS, runtime.GOARCH)
}

// unpacked unpacks the program of the module once for each process.
var unpacked = sync.OnceValues(unpackEmbedded)

func unpackEmbedded() (string, error) {
	if cache, err := os.UserCacheDir(); err == nil {
		if program, err := unpack(embedded, cache); err == nil {
			return program, nil
		}
	}
	// Not a shared name: in the system's temporary directory other users could put another program there.
	folder, err := os.MkdirTemp("", "vellum-program-")
	if err != nil {
		return "", err
	}
	return unpack(embedded, folder)
}

// unpack writes the program into the cache, once for each version.
func unpack(compressed []byte, cache string) (string, error) {
	sum := sha256.Sum256(compressed)
	folder := filepath.Join(cache, "vellum", hex.EncodeToString(sum[:8]))
	name := "vellum"
	if runtime.GOOS == "windows" {
		name = "vellum.exe"
	}
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return "", err
	}
	// Written under another name first: other test binaries may do the same at this time.
	file, err := os.CreateTemp(folder, "unpacking-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	_, err = io.Copy(file, reader)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(file.Name(), 0o700)
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return path, err
}
