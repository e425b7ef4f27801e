import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** What operators ask a broker for, beyond topics and groups. Errors are Kafka's numbers, 0 for none. */
final class Administration {
    private final Admin admin;

    Administration(Admin admin) {
        this.admin = admin;
    }

    /** The number of the error that each partition is answered with; of all partitions where the topic is null. */
    Map<String, Integer> electLeaders(String topic, List<Integer> partitions) throws Exception {
        Set<TopicPartition> asked = null;
        if (topic != null) {
            asked = new java.util.HashSet<>();
            for (int partition : partitions) {
                asked.add(new TopicPartition(topic, partition));
            }
        }
        Map<String, Integer> codes = new TreeMap<>();
        for (Map.Entry<TopicPartition, Optional<Throwable>> entry :
                admin.electLeaders(ElectionType.PREFERRED, asked).partitions().get().entrySet()) {
            int code = entry.getValue().map(failure -> (int) Errors.forException(failure).code()).orElse(0);
            codes.put(entry.getKey().toString(), code);
        }
        return codes;
    }

    /** The error of moving a partition to {@code replicas}; of cancelling a move where they are null. */
    int reassign(TopicPartition place, List<Integer> replicas) throws Exception {
        Optional<NewPartitionReassignment> wanted = Optional.ofNullable(replicas).map(NewPartitionReassignment::new);
        return code(admin.alterPartitionReassignments(Map.of(place, wanted)).all());
    }

    int reassignments() throws Exception {
        return admin.listPartitionReassignments().reassignments().get().size();
    }

    int moveLog(TopicPartition place, int broker, String path) throws Exception {
        TopicPartitionReplica replica = new TopicPartitionReplica(place.topic(), place.partition(), broker);
        return code(admin.alterReplicaLogDirs(Map.of(replica, path)).all());
    }

    /** Epoch and last sequence by producer id. */
    Map<Long, int[]> producers(TopicPartition place) throws Exception {
        Map<Long, int[]> found = new HashMap<>();
        for (ProducerState state :
                admin.describeProducers(Set.of(place)).partitionResult(place).get().activeProducers()) {
            found.put(state.producerId(), new int[] {state.producerEpoch(), state.lastSequence()});
        }
        return found;
    }

    int transactions() throws Exception {
        return admin.listTransactions().all().get().size();
    }

    int describeTransaction(String id) throws Exception {
        return code(admin.describeTransactions(Set.of(id)).all());
    }

    int describeAcls() throws Exception {
        return code(admin.describeAcls(AclBindingFilter.ANY).values());
    }

    int quotas() throws Exception {
        return admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size();
    }

    /** The error of setting a quota of a user; of removing it where {@code rate} is null. */
    int alterQuota(String user, Double rate) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        ClientQuotaAlteration.Op change = new ClientQuotaAlteration.Op("producer_byte_rate", rate);
        return code(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(change)))).all());
    }

    /** Name to finalized level, smallest and largest supported one. */
    Map<String, int[]> features() throws Exception {
        FeatureMetadata found = admin.describeFeatures().featureMetadata().get();
        Map<String, int[]> levels = new HashMap<>();
        found.supportedFeatures().forEach((name, range) -> levels.put(name, new int[] {
            found.finalizedFeatures().get(name).maxVersionLevel(), range.minVersion(), range.maxVersion()
        }));
        return levels;
    }

    /** The operations on a topic and on the cluster, by name. */
    List<List<String>> operations(String topic) throws Exception {
        TopicDescription described = admin.describeTopics(
                        List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true))
                .allTopicNames().get().get(topic);
        Set<AclOperation> cluster = admin.describeCluster(
                        new DescribeClusterOptions().includeAuthorizedOperations(true))
                .authorizedOperations().get();
        List<List<String>> names = new ArrayList<>();
        for (Set<AclOperation> operations : List.of(described.authorizedOperations(), cluster)) {
            names.add(operations.stream().map(Enum::name).sorted().toList());
        }
        return names;
    }

    private static int code(KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return 0;
        } catch (ExecutionException failure) {
            return Errors.forException(failure.getCause()).code();
        }
    }
}
