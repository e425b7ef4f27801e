package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// request has the arguments of all operations.
type request struct {
	Operation    string            `json:"operation"`
	Topic        string            `json:"topic"`
	Partition    int32             `json:"partition"`
	Partitions   int32             `json:"partitions"`
	Replicas     int16             `json:"replication_factor"`
	Config       map[string]string `json:"config"`
	Configs      map[string]string `json:"configs"`
	ValidateOnly bool              `json:"validate_only"`
	Total        int               `json:"total"`
	Before       int64             `json:"before"`
	Alteration   int8              `json:"alteration"`
	Key          string            `json:"key"`
	Value        *string           `json:"value"`
	Records      []record          `json:"records"`
	Codec        string            `json:"codec"`
	Acks         string            `json:"acks"`
	Idempotent   bool              `json:"idempotent"`
	Start        position          `json:"start"`
	At           position          `json:"at"`
	Reader       int               `json:"reader"`
	Count        int               `json:"count"`
	Member       int               `json:"member"`
	Group        string            `json:"group"`
	Assignors    []string          `json:"assignors"`
	Reset        string            `json:"reset"`
	Instance     *string           `json:"instance"`
	Protocol     string            `json:"protocol"`
	Offset       int64             `json:"offset"`
}

func (d *driver) perform(ctx context.Context, r request) (any, error) {
	switch r.Operation {
	case "produce":
		return d.produce(ctx, r)
	case "open":
		return d.open(ctx, r)
	case "take":
		return d.readers[r.Reader].take(ctx, r.Count)
	case "close":
		d.closeReader(r.Reader)
		return nil, nil
	case "offset":
		return d.offset(ctx, r.Topic, r.Partition, r.At)
	case "member_start":
		return d.startMember(r)
	case "member_look":
		return d.members[r.Member].look(), nil
	case "member_commit":
		return nil, d.members[r.Member].commit(ctx, r)
	case "member_stop":
		d.stopMember(r.Member)
		return nil, nil
	}
	return d.administer(ctx, kadm.NewClient(d.admin), r)
}

func (d *driver) administer(ctx context.Context, admin *kadm.Client, r request) (any, error) {
	switch r.Operation {
	case "create_topic":
		return nil, d.createTopic(ctx, r)
	case "delete_topic":
		deleted, err := admin.DeleteTopic(ctx, r.Topic)
		return nil, first(err, deleted.Err)
	case "topics":
		found, err := admin.ListTopicsWithInternal(ctx)
		return found.Names(), err
	case "partition_count":
		found, err := admin.ListTopicsWithInternal(ctx, r.Topic)
		return len(found[r.Topic].Partitions), first(err, found[r.Topic].Err)
	case "create_partitions":
		changed, err := admin.UpdatePartitions(ctx, r.Total, r.Topic)
		return nil, first(err, changed[r.Topic].Err)
	case "configs":
		return describeConfigs(ctx, admin, r.Topic)
	case "alter_config":
		change := kadm.AlterConfig{Op: kadm.IncrementalOp(r.Alteration), Name: r.Key, Value: r.Value}
		changed, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, r.Topic)
		return nil, firstAltered(err, changed)
	case "replace_configs":
		var changes []kadm.AlterConfig
		for name, value := range r.Configs {
			changes = append(changes, kadm.AlterConfig{Name: name, Value: &value})
		}
		changed, err := admin.AlterTopicConfigsState(ctx, changes, r.Topic)
		return nil, firstAltered(err, changed)
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(r.Topic, r.Partition, r.Before, -1)
		deleted, err := admin.DeleteRecords(ctx, offsets)
		return nil, first(err, deleted[r.Topic][r.Partition].Err)
	case "cluster":
		return describeCluster(ctx, admin)
	}
	return nil, fmt.Errorf("no operation %s", r.Operation)
}

func first(problems ...error) error {
	for _, each := range problems {
		if each != nil {
			return each
		}
	}
	return nil
}

func firstAltered(err error, changed kadm.AlterConfigsResponses) error {
	for _, each := range changed {
		err = first(err, each.Err)
	}
	return err
}

// createTopic sends the request itself, so that a name and a number of any kind reach the broker.
func (d *driver) createTopic(ctx context.Context, r request) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = r.Topic, r.Partitions, r.Replicas
	for name, value := range r.Config {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = name, &value
		topic.Configs = append(topic.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.ValidateOnly = r.ValidateOnly
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, d.admin)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].ErrorCode)
}

func describeConfigs(ctx context.Context, admin *kadm.Client, topic string) (any, error) {
	found, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	var configs [][]any
	for _, each := range found[0].Configs {
		configs = append(configs, []any{each.Key, each.Value, each.Source == kmsg.ConfigSourceDefaultConfig})
	}
	return configs, found[0].Err
}

func describeCluster(ctx context.Context, admin *kadm.Client) (any, error) {
	found, err := admin.BrokerMetadata(ctx)
	var brokers [][]any
	for _, each := range found.Brokers {
		brokers = append(brokers, []any{each.NodeID, each.Host, each.Port})
	}
	return map[string]any{"cluster_id": found.Cluster, "controller_id": found.Controller, "brokers": brokers}, err
}
