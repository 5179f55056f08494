// Receives events that Chapar pushes: checks the signature, applies each event once.
//
//	go run . PORT SECRET_FILE JOURNAL
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tolerance = 5 * time.Minute
	largest   = 32 << 20
)

// refused is answered with 401.
type refused string

func (r refused) Error() string { return string(r) }

func readSecrets(path string) ([][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var secrets [][]byte
	for _, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, "whsec_"))
		if err != nil {
			return nil, errors.New(path + " holds a line that is no secret")
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// verify returns the id and the timestamp of a message that was really sent by Chapar, and just now.
func verify(secrets [][]byte, header http.Header, body []byte) (string, int64, error) {
	id, at := header.Get("webhook-id"), header.Get("webhook-timestamp")
	timestamp, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return "", 0, refused("the timestamp is not a number of seconds")
	}
	age := time.Since(time.Unix(timestamp, 0))
	if age > tolerance || age < -tolerance {
		return "", 0, refused("the timestamp is off by more than five minutes")
	}
	for _, signature := range strings.Split(header.Get("webhook-signature"), " ") {
		given, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signature, "v1,"))
		if err != nil || !strings.HasPrefix(signature, "v1,") {
			continue
		}
		for _, secret := range secrets {
			mac := hmac.New(sha256.New, secret)
			fmt.Fprintf(mac, "%s.%s.", id, at)
			mac.Write(body)
			if hmac.Equal(mac.Sum(nil), given) {
				return id, timestamp, nil
			}
		}
	}
	return "", 0, refused("no signature fits")
}

type applied struct {
	ID        string          `json:"id"`
	Timestamp int64           `json:"timestamp"`
	Body      string          `json:"body"`
	Topic     string          `json:"topic"`
	Payload   json.RawMessage `json:"payload"`
}

// journal is what was applied, one line of JSON each. In a service this is a table, beside the rows that
// the event changes.
type journal struct {
	sync.Mutex
	seen map[string]applied
	file *os.File
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	// The last line may be half a line: its writer has not answered, so that it comes again.
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	if err := file.Truncate(int64(len(text))); err != nil {
		return nil, err
	}
	if _, err := file.Seek(int64(len(text)), io.SeekStart); err != nil {
		return nil, err
	}
	j := &journal{seen: map[string]applied{}, file: file}
	for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var entry applied
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, err
		}
		j.seen[entry.ID] = entry
	}
	return j, nil
}

var errNotAnEvent = errors.New("not an event")

// apply says false where the event was applied before.
func (j *journal) apply(id string, timestamp int64, topic string, body []byte) (bool, error) {
	sum := sha256.Sum256(body)
	digest := hex.EncodeToString(sum[:])
	j.Lock()
	defer j.Unlock()
	if known, ok := j.seen[id]; ok {
		if known.Body != digest {
			return false, refused("the id was taken before with another body")
		}
		if known.Timestamp == timestamp {
			return false, refused("this attempt was taken before and is now replayed")
		}
		return false, nil
	}
	var envelope struct {
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil || envelope.Payload == nil {
		return false, errNotAnEvent
	}
	entry := applied{ID: id, Timestamp: timestamp, Body: digest, Topic: topic, Payload: envelope.Payload}
	line, err := json.Marshal(entry)
	if err != nil {
		return false, err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return false, err
	}
	if err := j.file.Sync(); err != nil {
		return false, err
	}
	j.seen[id] = entry
	return true, nil
}

func receiver(secrets [][]byte, j *journal) http.HandlerFunc {
	const prefix = "/internal/events/"
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, prefix) {
			http.Error(w, "no such topic", http.StatusNotFound)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largest))
		if err != nil {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			return
		}
		id, timestamp, err := verify(secrets, r.Header, body)
		fresh := false
		if err == nil {
			fresh, err = j.apply(id, timestamp, strings.TrimPrefix(r.URL.Path, prefix), body)
		}
		var no refused
		switch {
		case errors.As(err, &no):
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case errors.Is(err, errNotAnEvent):
			// Never to be understood: Chapar keeps it as a dead letter.
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case fresh:
			fmt.Fprint(w, "applied")
		default:
			fmt.Fprint(w, "applied before")
		}
	}
}

func run() error {
	if len(os.Args) != 4 {
		return errors.New("usage: receiver PORT SECRET_FILE JOURNAL")
	}
	secrets, err := readSecrets(os.Args[2])
	if err != nil {
		return err
	}
	j, err := openJournal(os.Args[3])
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		return err
	}
	fmt.Println("receiving at http://" + listener.Addr().String())
	return http.Serve(listener, receiver(secrets, j))
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
