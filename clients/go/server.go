// Package vellumtest gives every Go test a MongoDB database of its own: empty, or a fork of a template that is
// built once. One server runs for each test binary, and ends with it, however it ends.
//
//	func TestPeople(t *testing.T) {
//		db := vellumtest.Fork(t, fill)
//		…
//	}
package vellumtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const startTimeout = 30 * time.Second

// Server is a running vellum process. It ends when its standard input closes, which the operating system sees to
// when this process ends, also by SIGKILL.
type Server struct {
	// URI is the connection string.
	URI   string
	cmd   *exec.Cmd
	stdin io.Closer
}

// lastWords keeps the end of what the server logs, to be shown when it doesn't start.
type lastWords struct {
	lock sync.Mutex
	text []byte
}

func (w *lastWords) Write(more []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.text = append(w.text, more...)
	if excess := len(w.text) - 64*1024; excess > 0 {
		w.text = w.text[excess:]
	}
	return len(more), nil
}

func (w *lastWords) String() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return strings.TrimSpace(string(w.text))
}

// Start runs the program that VELLUM_BINARY names, or the one that a release of this module carries, or else the
// vellum on the path, with these further options. The error of a server that doesn't start is the server's own message.
func Start(args ...string) (*Server, error) {
	program, err := findProgram()
	if err != nil {
		return nil, fmt.Errorf("vellum did not start: %w", err)
	}
	cmd := exec.Command(program, append([]string{"serve", "--port", "0", "--parent-pipe"}, args...)...)
	said := &lastWords{}
	cmd.Stderr = said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("vellum did not start: %w", err)
	}
	alarm := time.AfterFunc(startTimeout, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	alarm.Stop()
	uri := strings.TrimSpace(line)
	if err != nil || !strings.HasPrefix(uri, "mongodb://") {
		ended := cmd.Wait()
		return nil, fmt.Errorf("vellum did not start: %w", errors.Join(errors.New(said.String()), ended))
	}
	return &Server{URI: uri, cmd: cmd, stdin: stdin}, nil
}

// Stop ends the server and waits until it is gone.
func (s *Server) Stop() error {
	if err := s.stdin.Close(); err != nil {
		return err
	}
	return s.cmd.Wait()
}
