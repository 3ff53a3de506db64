// Asks a command the requests of a vector file, and compares its answers with the engine's.
//
//	go run run_vectors.go VECTORS COMMAND [ARGUMENT...]
//
// The protocol is that of ../README.md, "Running them". Identities and block hashes are not compared
// here; ../run_vectors.py does. The standard library is all it needs.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"sort"
	"strings"
)

type placeholder struct {
	Modality  string   `json:"modality"`
	Offset    int      `json:"offset"`
	Length    int      `json:"length"`
	EmbedRuns [][2]int `json:"embed_runs"`
}

type vector struct {
	ID     string `json:"id"`
	Expect struct {
		Refused      *string       `json:"refused"`
		TokenRuns    [][2]uint32   `json:"token_runs"`
		Placeholders []placeholder `json:"placeholders"`
	} `json:"expect"`
}

type answer struct {
	Exact        *bool          `json:"exact"`
	Reason       string         `json:"reason"`
	TokenIDs     *[]uint32      `json:"token_ids"`
	Placeholders *[]placeholder `json:"placeholders"`
}

// lines returns the lines of a JSON Lines file that are not empty.
func lines(content []byte) [][]byte {
	var found [][]byte
	for _, line := range bytes.Split(content, []byte("\n")) {
		if len(line) > 0 {
			found = append(found, line)
		}
	}
	return found
}

func read(path string) [][]byte {
	content, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	return lines(content)
}

func decode(line []byte, into any) {
	if err := json.Unmarshal(line, into); err != nil {
		log.Fatalf("%v in %.200s", err, line)
	}
}

// withFiles replaces each text "file:NAME" by the data URL of that file.
func withFiles(value any, urls map[string]string) any {
	switch value := value.(type) {
	case string:
		if url, ok := urls[strings.TrimPrefix(value, "file:")]; ok && strings.HasPrefix(value, "file:") {
			return url
		}
	case []any:
		for i := range value {
			value[i] = withFiles(value[i], urls)
		}
	case map[string]any:
		for key := range value {
			value[key] = withFiles(value[key], urls)
		}
	}
	return value
}

// request is a vector without its answer. Numbers keep their spelling.
func request(line []byte, urls map[string]string) []byte {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		log.Fatal(err)
	}
	delete(fields, "tags")
	delete(fields, "expect")
	written, err := json.Marshal(withFiles(fields, urls))
	if err != nil {
		log.Fatal(err)
	}
	return append(written, '\n')
}

// ordered returns the ranges by offset, without the runs of one whose positions are all features.
func ordered(ranges []placeholder) []placeholder {
	plain := append([]placeholder{}, ranges...)
	for i := range plain {
		if reflect.DeepEqual(plain[i].EmbedRuns, [][2]int{{1, plain[i].Length}}) {
			plain[i].EmbedRuns = nil
		}
	}
	sort.SliceStable(plain, func(i, j int) bool { return plain[i].Offset < plain[j].Offset })
	return plain
}

// wrong says what is wrong with an answer; nothing if it is right.
func wrong(got answer, want vector) string {
	if got.Exact == nil {
		return "no `exact`"
	}
	if want.Expect.Refused != nil {
		if *got.Exact {
			return "SILENT: exact, but the engine refuses: " + *want.Expect.Refused
		}
		return ""
	}
	if got.Reason == "unsupported_processor_kwargs" { // which need not be followed
		return ""
	}
	if !*got.Exact {
		return "inexact (" + got.Reason + "), but the engine answers"
	}
	if got.TokenIDs != nil {
		var ids []uint32
		for _, run := range want.Expect.TokenRuns {
			for i := uint32(0); i < run[1]; i++ {
				ids = append(ids, run[0])
			}
		}
		for i := 0; i < len(ids) || i < len(*got.TokenIDs); i++ {
			if i >= len(ids) || i >= len(*got.TokenIDs) || ids[i] != (*got.TokenIDs)[i] {
				return fmt.Sprintf("SILENT: other token IDs from index %d on (%d of them, the engine has %d)",
					i, len(*got.TokenIDs), len(ids))
			}
		}
	}
	if got.Placeholders != nil {
		ours, theirs := ordered(*got.Placeholders), ordered(want.Expect.Placeholders)
		if !reflect.DeepEqual(ours, theirs) {
			return fmt.Sprintf("SILENT: ranges %v, the engine has %v", ours, theirs)
		}
	}
	return ""
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: run_vectors VECTORS COMMAND [ARGUMENT...]")
	}
	_, source, _, _ := runtime.Caller(0)
	urls := map[string]string{}
	for _, line := range read(filepath.Join(filepath.Dir(source), "../vectors/images/files.jsonl")) {
		var file struct{ Name, URL string }
		decode(line, &file)
		urls[file.Name] = file.URL
	}
	vectors := read(os.Args[1])
	var meta struct {
		Backend string
		Version string `json:"backend_version"`
	}
	decode(vectors[0], &meta)
	var requests bytes.Buffer
	for _, line := range vectors[1:] {
		requests.Write(request(line, urls))
	}
	command := exec.Command(os.Args[2], os.Args[3:]...)
	command.Stdin, command.Stderr = &requests, os.Stderr
	output, err := command.Output()
	if err != nil {
		log.Fatalf("%s: %v", os.Args[2], err)
	}
	answers := lines(output)
	if len(answers) != len(vectors)-1 {
		log.Fatalf("%d answers to %d requests", len(answers), len(vectors)-1)
	}
	failed := 0
	for i, line := range vectors[1:] {
		var want vector
		var got answer
		decode(line, &want)
		decode(answers[i], &got)
		if why := wrong(got, want); why != "" {
			failed++
			fmt.Printf("%s: %s\n", want.ID, why)
		}
	}
	if failed > 0 {
		log.Fatalf("not conformant with %s %s: %d of %d wrong", meta.Backend, meta.Version, failed, len(answers))
	}
	fmt.Printf("conformant with %s %s: %d of %d\n", meta.Backend, meta.Version, len(answers), len(answers))
}
