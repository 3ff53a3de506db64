// A KV-aware router that knows no tokenizer: it asks `mmroute serve` for block hashes, and sends each
// chat to the worker that got most of its prompt before. The standard library is all it needs.
//
//	go run examples/go_router/main.go --listen 127.0.0.1:9000 --render http://127.0.0.1:8000 \
//	    --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	maxBlocks = 1 << 20 // blocks that are remembered; about 100 bytes each
	maxBody   = 64 << 20
)

// Router remembers to which worker the prompts went.
//
// A block hash covers all blocks before it. So the worker that got the deepest known block of a
// prompt got all of the prompt up to there.
type Router struct {
	mu     sync.Mutex
	owners map[string]int // block hash -> the worker that got it last
	order  []string       // hashes in the order in which they came, to forget the oldest
	load   []Load
}

// Load is what a worker has now, and what it ever got.
type Load struct{ running, sent int }

// Pick returns the worker for a prompt, and how many of its blocks went there before.
func (r *Router) Pick(hashes []string) (worker, known int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	worker = r.idlest()
	for i := len(hashes) - 1; i >= 0; i-- {
		if owner, ok := r.owners[hashes[i]]; ok {
			// A short common beginning, such as a system prompt, is no reason to crowd one worker.
			if 2*(i+1) >= len(hashes) {
				worker, known = owner, i+1
			}
			break
		}
	}
	for _, hash := range hashes {
		if _, ok := r.owners[hash]; !ok {
			r.order = append(r.order, hash)
		}
		r.owners[hash] = worker
	}
	for len(r.order) > maxBlocks {
		delete(r.owners, r.order[0])
		r.order = r.order[1:]
	}
	r.load[worker].running++
	r.load[worker].sent++
	return worker, known
}

// Done says that a worker has answered a request.
func (r *Router) Done(worker int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load[worker].running--
}

func (r *Router) idlest() int {
	best := 0
	for worker, load := range r.load {
		least := r.load[best]
		if load.running < least.running || load.running == least.running && load.sent < least.sent {
			best = worker
		}
	}
	return best
}

// blockHashes asks mmroute. Where there is no exact answer, reason says why, and any worker will do.
func blockHashes(client *http.Client, render string, body []byte) (hashes []string, reason string) {
	answer, err := client.Post(render, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Sprintf("%d %s", answer.StatusCode, answer.Header.Get("x-mmroute-reason"))
	}
	var rendered struct {
		BlockHashes []string `json:"block_hashes"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&rendered); err != nil {
		return nil, err.Error()
	}
	return rendered.BlockHashes, ""
}

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	server := flag.String("render", "http://127.0.0.1:8000", "URL of mmroute serve")
	size := flag.Int("block-size", 16, "the workers' block size")
	var workers []*httputil.ReverseProxy
	var names []string
	flag.Func("worker", "URL of a worker; repeatable", func(text string) error {
		target, err := url.Parse(text)
		if err == nil {
			workers = append(workers, httputil.NewSingleHostReverseProxy(target))
			names = append(names, text)
		}
		return err
	})
	flag.Parse()
	if len(workers) == 0 {
		log.Fatal("give at least one --worker URL")
	}
	router := &Router{owners: map[string]int{}, load: make([]Load, len(workers))}
	client := &http.Client{Timeout: 2 * time.Second}
	render := fmt.Sprintf("%s/v1/chat/completions/render?block_size=%d",
		strings.TrimRight(*server, "/"), *size)

	http.HandleFunc("/v1/chat/completions", func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		hashes, reason := blockHashes(client, render, body)
		worker, known := router.Pick(hashes)
		defer router.Done(worker)
		log.Printf("%s: %d of %d blocks known %s", names[worker], known, len(hashes), reason)
		w.Header().Set("x-worker", names[worker])
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		workers[worker].ServeHTTP(w, request) // as it came; an answer in pieces is passed on in pieces
	})
	log.Printf("listening on %s", *listen)
	log.Fatal(http.ListenAndServe(*listen, nil))
}
