package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	latest   = -1
	earliest = -2
)

// record has bytes as base64, which encoding/json does by itself; null is nil.
type record struct {
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
	Offset    int64    `json:"offset"`
}

// header is a pair in JSON.
type header kgo.RecordHeader

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Key, h.Value})
}

func (h *header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.Key, &h.Value})
}

type position struct {
	Kind  string `json:"kind"`
	Value int64  `json:"value"`
}

type reader struct {
	client *kgo.Client
	ahead  []record
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acknowledgements = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func (d *driver) produce(ctx context.Context, request request) (any, error) {
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[request.Codec]),
		kgo.RequiredAcks(acknowledgements[request.Acks]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.AllowAutoTopicCreation(),
		kgo.UnknownTopicRetries(20),
	}
	if !request.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, each := range request.Records {
		made := &kgo.Record{Topic: request.Topic, Partition: request.Partition, Key: each.Key, Value: each.Value}
		if each.Timestamp != nil {
			made.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			made.Headers = append(made.Headers, kgo.RecordHeader(header))
		}
		records = append(records, made)
	}
	return nil, client.ProduceSync(ctx, records...).FirstErr()
}

func (d *driver) open(ctx context.Context, request request) (any, error) {
	start := request.Start.Value
	if request.Start.Kind != "offset" {
		place := request.Start
		if place.Kind == "tail" {
			place = position{Kind: "end"}
		}
		found, err := d.offset(ctx, request.Topic, request.Partition, place)
		if err != nil {
			return nil, err
		}
		if request.Start.Kind == "tail" {
			found -= start
		}
		start = found
	}
	places := map[string]map[int32]kgo.Offset{request.Topic: {request.Partition: kgo.NewOffset().At(start)}}
	client, err := d.client(
		kgo.ConsumePartitions(places),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	number := d.number()
	d.readers[number] = &reader{client: client}
	return number, nil
}

func (r *reader) take(ctx context.Context, count int) ([]record, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for len(r.ahead) < count {
		fetches := r.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d records came", len(r.ahead), count)
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(each *kgo.Record) { r.ahead = append(r.ahead, asJSON(each)) })
	}
	taken := r.ahead[:count]
	r.ahead = r.ahead[count:]
	return taken, nil
}

func asJSON(found *kgo.Record) record {
	headers := []header{}
	for _, each := range found.Headers {
		headers = append(headers, header(each))
	}
	milliseconds := found.Timestamp.UnixMilli()
	return record{found.Key, found.Value, headers, &milliseconds, found.Offset}
}

func (d *driver) closeReader(number int) {
	d.readers[number].client.Close()
	delete(d.readers, number)
}

// offset asks the leader, as kadm does not: it answers the end of the log for a time that no record has.
func (d *driver) offset(ctx context.Context, topic string, index int32, at position) (int64, error) {
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition = index
	partition.Timestamp = map[string]int64{"beginning": earliest, "end": latest, "at": at.Value}[at.Kind]
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = topic
	wanted.Partitions = append(wanted.Partitions, partition)
	request := kmsg.NewPtrListOffsetsRequest()
	request.Topics = append(request.Topics, wanted)
	client, err := d.client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	found := response.Topics[0].Partitions[0]
	return found.Offset, kerr.ErrorForCode(found.ErrorCode)
}
