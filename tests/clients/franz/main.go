// franz-go as a peer: driver host:port,...
//
// One JSON request per line on stdin, {"operation": name, ...arguments}; one JSON answer per line on stdout, in order,
// {"result": ...} or {"error": {"code", "message"}} with Kafka's number of the error, or null for an error of the
// client itself.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 20 * time.Second

type problem struct {
	Code    *int16 `json:"code"`
	Message string `json:"message"`
}

type driver struct {
	seeds   []string
	admin   *kgo.Client
	readers map[int]*reader
	members map[int]*member
	last    int
}

func main() {
	seeds := strings.Split(os.Args[1], ",")
	admin, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(10*time.Millisecond)) // topics change here
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer admin.Close()
	driver := &driver{seeds, admin, map[int]*reader{}, map[int]*member{}, 0}
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for requests.Scan() {
		if err := answers.Encode(driver.answer(requests.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func (d *driver) answer(line []byte) map[string]any {
	var request request
	result, err := any(nil), json.Unmarshal(line, &request)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		result, err = d.perform(ctx, request)
	}
	if err != nil {
		return map[string]any{"error": problem{codeOf(err), err.Error()}}
	}
	return map[string]any{"result": result}
}

func codeOf(err error) *int16 {
	var known *kerr.Error
	if errors.As(err, &known) {
		return &known.Code
	}
	return nil
}

// client returns a client of its own for one operation: what another one has cached does not count.
func (d *driver) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(d.seeds...)}, options...)...)
}

func (d *driver) number() int {
	d.last++
	return d.last
}
