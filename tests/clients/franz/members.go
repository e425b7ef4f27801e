package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	"uniform":            kgo.StickyBalancer(), // the client asks the broker for it by this name
}

var starts = map[string]kgo.Offset{
	"earliest": kgo.NewOffset().AtStart(),
	"latest":   kgo.NewOffset().AtEnd(),
	"none":     kgo.NewOffset().AtCommitted(),
}

var resets = map[string]kgo.Offset{
	"earliest": kgo.NewOffset().AtStart(),
	"latest":   kgo.NewOffset().AtEnd(),
	"none":     kgo.NoResetOffset(),
}

// member is a consumer in a group, which polls by itself.
type member struct {
	client *kgo.Client
	topic  string
	done   chan struct{}

	lock        sync.Mutex
	assignment  map[int32]bool
	revoked     map[int32]bool
	assignments int
	read        [][2]int64
	error       *int16
}

func (d *driver) startMember(r request) (any, error) {
	made := &member{topic: r.Topic, done: make(chan struct{}), assignment: map[int32]bool{}, revoked: map[int32]bool{}}
	var assignors []kgo.GroupBalancer
	for _, name := range r.Assignors {
		assignors = append(assignors, balancers[name])
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(r.Group),
		kgo.ConsumeTopics(r.Topic),
		kgo.Balancers(assignors...),
		kgo.ConsumeStartOffset(starts[r.Reset]),
		kgo.ConsumeResetOffset(resets[r.Reset]),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.OnPartitionsAssigned(made.onAssigned),
		kgo.OnPartitionsRevoked(made.onRevoked),
		kgo.OnPartitionsLost(made.onRevoked),
	}
	if r.Topic[0] == '^' {
		options = append(options, kgo.ConsumeRegex())
	}
	if r.Instance != nil {
		options = append(options, kgo.InstanceID(*r.Instance))
	}
	if r.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	made.client = client
	go made.poll()
	number := d.number()
	d.members[number] = made
	return number, nil
}

func (d *driver) stopMember(number int) {
	member := d.members[number]
	delete(d.members, number)
	member.client.Close()
	<-member.done
}

func (m *member) poll() {
	defer close(m.done)
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		m.lock.Lock()
		fetches.EachError(func(_ string, _ int32, err error) {
			if code := codeOf(err); code != nil {
				m.error = code
			} else {
				m.error = new(int16(-1))
			}
		})
		fetches.EachRecord(func(each *kgo.Record) {
			m.read = append(m.read, [2]int64{int64(each.Partition), each.Offset})
		})
		m.lock.Unlock()
	}
}

func (m *member) onAssigned(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.assignments++
	for _, partitions := range assigned {
		for _, each := range partitions {
			m.assignment[each] = true
		}
	}
}

func (m *member) onRevoked(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partitions := range revoked {
		for _, each := range partitions {
			delete(m.assignment, each)
			m.revoked[each] = true
		}
	}
}

func (m *member) look() any {
	m.lock.Lock()
	defer m.lock.Unlock()
	return map[string]any{
		"assignment":  sorted(m.assignment),
		"revoked":     sorted(m.revoked),
		"assignments": m.assignments,
		"read":        append([][2]int64{}, m.read...),
		"error":       m.error,
	}
}

func sorted(partitions map[int32]bool) []int32 {
	found := []int32{}
	for each := range partitions {
		found = append(found, each)
	}
	slices.Sort(found)
	return found
}

func (m *member) commit(ctx context.Context, r request) error {
	before := &kgo.Record{Topic: m.topic, Partition: r.Partition, LeaderEpoch: -1, Offset: r.Offset - 1}
	return m.client.CommitRecords(ctx, before)
}
