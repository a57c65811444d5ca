// Package vellumtest gives every Go test its own MongoDB database: empty, or a fork of a template that is
// built once. Each test binary runs one server. The server ends with the test binary in any case.
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
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const startTimeout = 30 * time.Second

// Server is a running vellum process. It ends when its standard input closes. The operating system closes it
// when this process ends, even by SIGKILL.
type Server struct {
	// URI is the connection string.
	URI   string
	cmd   *exec.Cmd
	stdin io.Closer
}

// running contains the servers that have not been stopped. Without it, the garbage collector would close the
// standard input of an unreferenced server whose URI is in use.
var running sync.Map

// logTail keeps the end of the server's log, for the error of a failed start.
type logTail struct {
	lock sync.Mutex
	text []byte
}

func (w *logTail) Write(more []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.text = append(w.text, more...)
	if excess := len(w.text) - 64*1024; excess > 0 {
		w.text = w.text[excess:]
	}
	return len(more), nil
}

func (w *logTail) String() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return strings.TrimSpace(string(w.text))
}

// Start runs the program named by VELLUM_BINARY, or the program in a release of this module, or vellum on the
// path, with these further options. A failed start returns the server's own message.
func Start(args ...string) (*Server, error) {
	return start(nil, "", args)
}

// StartAs starts a server with access control. The given user is the first user and has all privileges. URI
// contains the password.
func StartAs(user *url.Userinfo, args ...string) (*Server, error) {
	return start(user, "", args)
}

// choosesPlace returns true for an option that chooses the place of the data. Without any of them it is memory, also
// if the environment names another place.
func choosesPlace(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return slices.Contains([]string{"--config", "--data", "--engine", "--postgres"}, name)
}

func start(user *url.Userinfo, uriOptions string, args []string) (*Server, error) {
	program, err := findProgram()
	if err != nil {
		return nil, fmt.Errorf("vellum did not start: %w", err)
	}
	cmd := exec.Command(program, append([]string{"serve", "--port", "0", "--parent-pipe"}, args...)...)
	if !slices.ContainsFunc(args, choosesPlace) {
		cmd.Args = append(cmd.Args, "--engine", "memory")
	}
	// Variables of MongoDB's images, perhaps for another server, would require a login.
	isFirstUser := func(variable string) bool { return strings.HasPrefix(variable, "MONGO_INITDB_ROOT_") }
	cmd.Env = slices.DeleteFunc(os.Environ(), isFirstUser)
	if user != nil {
		password, _ := user.Password()
		cmd.Env = append(cmd.Env, "MONGO_INITDB_ROOT_USERNAME="+user.Username(), "MONGO_INITDB_ROOT_PASSWORD="+password)
		// The clock is for tests. With users, it is off unless it is requested.
		isTestCommands := func(arg string) bool { return strings.HasPrefix(arg, "--test-commands") }
		if !slices.ContainsFunc(args, isTestCommands) {
			cmd.Args = append(cmd.Args, "--test-commands")
		}
	}
	log := &logTail{}
	cmd.Stderr = log
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
	timer := time.AfterFunc(startTimeout, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	timer.Stop()
	uri := strings.TrimSpace(line)
	if err != nil || !strings.HasPrefix(uri, "mongodb://") {
		// Another program may run on after its first line, and its children may hold the log open.
		_ = cmd.Process.Kill()
		cmd.WaitDelay = time.Second
		status := cmd.Wait()
		return nil, fmt.Errorf("vellum did not start: %w", errors.Join(errors.New(log.String()), status))
	}
	server := &Server{URI: connectionString(uri, user, uriOptions), cmd: cmd, stdin: stdin}
	running.Store(server, nil)
	return server, nil
}

// connectionString adds a user and client options, such as the path of certificates.
func connectionString(uri string, user *url.Userinfo, options string) string {
	if user != nil {
		password, _ := user.Password()
		login := url.QueryEscape(user.Username()) + ":" + url.QueryEscape(password)
		// In a connection string a space is %20, and + stands for itself.
		uri = strings.Replace(uri, "://", "://"+strings.ReplaceAll(login, "+", "%20")+"@", 1)
	}
	if options == "" {
		return uri
	}
	if strings.Contains(uri, "?") {
		return uri + "&" + options
	}
	return uri + "?" + options
}

// Stop stops the server and waits for its end.
func (s *Server) Stop() error {
	running.Delete(s)
	if err := s.stdin.Close(); err != nil {
		return err
	}
	return s.cmd.Wait()
}
