import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client as a peer: {@code java -cp ... Driver host:port}.
 *
 * <p>One JSON request per line on stdin, {"operation": name, ...arguments}; one JSON answer per line on stdout, in
 * order, {"result": ...} or {"error": {"code", "message"}} with Kafka's number of the error, or null for an error of
 * the client itself. The same source runs with every version of kafka-clients from 3.9 on.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    /** An open consumer, with what a poll brought beyond what was asked for. */
    private record Reader(KafkaConsumer<byte[], byte[]> consumer, Deque<ConsumerRecord<byte[], byte[]>> ahead) {}

    private final String bootstrap;
    private final Admin admin;
    private final Map<Integer, Reader> readers = new HashMap<>();
    private int lastReader = 0;
    private final GroupMembers members;
    private final Groups groups;
    private final Administration administration;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(connection());
        this.members = new GroupMembers(bootstrap);
        this.groups = new Groups(admin);
        this.administration = new Administration(admin);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver driver = new Driver(arguments[0]);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
        }
        driver.admin.close();
    }

    private Map<String, Object> answer(JsonNode request) {
        Map<String, Object> answer = new HashMap<>();
        try {
            answer.put("result", perform(request));
        } catch (Throwable failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            Map<String, Object> error = new HashMap<>();
            error.put("code", codeOf(cause));
            error.put("message", cause.toString());
            answer.put("error", error);
        }
        return answer;
    }

    private static Integer codeOf(Throwable cause) {
        if (cause instanceof OffsetOutOfRangeException) {
            return (int) Errors.OFFSET_OUT_OF_RANGE.code();
        }
        Errors error = Errors.forException(cause);
        return error == Errors.UNKNOWN_SERVER_ERROR ? null : Integer.valueOf(error.code());
    }

    private Object perform(JsonNode request) throws Exception {
        String topic = request.path("topic").asText();
        return switch (request.get("operation").asText()) {
            case "produce" -> produce(request);
            case "open" -> open(request);
            case "take" -> take(readers.get(request.get("reader").asInt()), request.get("count").asInt());
            case "close" -> close(request.get("reader").asInt());
            case "offset" -> offset(partitionOf(request), request.get("at"));
            case "create_topic" -> createTopic(request);
            case "delete_topic" -> admin.deleteTopics(List.of(topic)).all().get();
            case "topics" -> admin.listTopics().names().get();
            case "partition_count" -> describe(topic).partitions().size();
            case "describe_by_id" -> describeById(describe(topic));
            case "create_partitions" -> createPartitions(topic, request.get("total").asInt());
            case "configs" -> configs(new ConfigResource(ConfigResource.Type.TOPIC, topic));
            case "broker_configs" -> configs(brokerResource(request.get("broker").asText()));
            case "alter_config" -> alterConfig(topic, request);
            case "delete_records" -> deleteRecords(partitionOf(request), request.get("before").asLong());
            case "log_size" -> logSize(partitionOf(request), request.get("broker").asInt());
            case "cluster" -> cluster();
            case "member_start" -> members.start(request);
            case "member_look" -> members.look(request.get("member").asInt());
            case "member_commit" -> members.commit(request);
            case "member_stop" -> members.stop(request.get("member").asInt());
            case "groups" -> groups.list();
            case "describe_group" -> groups.describe(request.get("group").asText());
            case "group_offsets" -> groups.offsets(request.get("group").asText(), topic);
            case "delete_group" -> groups.delete(request.get("group").asText());
            case "delete_group_offset" -> groups.deleteOffset(request.get("group").asText(), partitionOf(request));
            default -> administer(request);
        };
    }

    private Object administer(JsonNode request) throws Exception {
        String topic = request.path("topic").isNull() ? null : request.path("topic").asText();
        return switch (request.get("operation").asText()) {
            case "elect_leaders" -> administration.electLeaders(topic, integers(request.path("partitions")));
            case "reassign" -> administration.reassign(partitionOf(request), integers(request.get("replicas")));
            case "reassignments" -> administration.reassignments();
            case "move_log" -> administration.moveLog(
                    partitionOf(request), request.get("broker").asInt(), request.get("path").asText());
            case "producers" -> administration.producers(partitionOf(request));
            case "transactions" -> administration.transactions();
            case "describe_transaction" -> administration.describeTransaction(request.get("id").asText());
            case "describe_acls" -> administration.describeAcls();
            case "quotas" -> administration.quotas();
            case "alter_quota" -> administration.alterQuota(
                    request.get("user").asText(), request.get("rate").isNull() ? null : request.get("rate").asDouble());
            case "features" -> administration.features();
            case "operations" -> administration.operations(topic);
            case "transact" -> Transactions.transact(
                    connection(), request.get("id").asText(), topic, strings(request.get("values")),
                    request.get("commits").asBoolean());
            case "fence" -> Transactions.fence(connection(), request.get("id").asText(), topic);
            case "time_out" -> Transactions.timeOut(connection(), request.get("id").asText(), topic);
            case "commit_offset" -> Transactions.commitOffset(
                    connection(), request.get("id").asText(), request.get("group").asText(), partitionOf(request),
                    request.get("offset").asLong(), request.get("commits").asBoolean());
            case "read_committed" -> Transactions.readCommitted(
                    connection(), partitionOf(request), request.get("count").asInt());
            default -> throw new IllegalArgumentException(request.toString());
        };
    }

    private static List<String> strings(JsonNode texts) {
        List<String> list = new ArrayList<>();
        texts.forEach(text -> list.add(text.asText()));
        return list;
    }

    private static List<Integer> integers(JsonNode numbers) {
        if (numbers.isNull()) {
            return null;
        }
        List<Integer> found = new ArrayList<>();
        numbers.forEach(number -> found.add(number.asInt()));
        return found;
    }

    private Properties connection() {
        Properties properties = new Properties();
        String security = System.getenv("PEER_PROPERTIES"); // TLS and the login
        if (security != null) {
            try (java.io.Reader file = java.nio.file.Files.newBufferedReader(java.nio.file.Path.of(security))) {
                properties.load(file);
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private static TopicPartition partitionOf(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String base64(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    /** Offset and timestamp of each record, as the client reports them. */
    private List<long[]> produce(JsonNode request) throws Exception {
        Properties properties = connection();
        properties.put("compression.type", request.get("codec").asText());
        properties.put("acks", request.get("acks").asText());
        properties.put("enable.idempotence", request.get("idempotent").asBoolean());
        properties.put("linger.ms", "100");
        properties.put("max.request.size", String.valueOf(20 << 20));
        properties.put("max.block.ms", String.valueOf(PATIENCE.toMillis()));
        List<long[]> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> pending = new ArrayList<>();
            for (JsonNode record : request.get("records")) {
                pending.add(producer.send(recordFor(partitionOf(request), record)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : pending) {
                RecordMetadata metadata = future.get();
                sent.add(new long[] {metadata.offset(), metadata.timestamp()});
            }
        }
        return sent;
    }

    private static ProducerRecord<byte[], byte[]> recordFor(TopicPartition place, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Long timestamp = record.get("timestamp").isNull() ? null : Long.valueOf(record.get("timestamp").asLong());
        byte[] key = bytes(record.get("key"));
        return new ProducerRecord<>(place.topic(), place.partition(), timestamp, key, bytes(record.get("value")), headers);
    }

    private int open(JsonNode request) {
        Properties properties = connection();
        properties.put("auto.offset.reset", request.path("reset").asText("none"));
        properties.put("enable.auto.commit", "false");
        // Closing waits for the fetch that is under way.
        properties.put("fetch.max.wait.ms", "50");
        var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        TopicPartition place = partitionOf(request);
        JsonNode start = request.get("start");
        consumer.assign(List.of(place));
        switch (start.get("kind").asText()) {
            case "beginning" -> consumer.seekToBeginning(List.of(place));
            case "end" -> consumer.seekToEnd(List.of(place));
            case "offset" -> consumer.seek(place, start.get("value").asLong());
            case "tail" -> consumer.seek(place, consumer.endOffsets(List.of(place)).get(place) - start.get("value").asLong());
            case "at" -> {
                Map<TopicPartition, OffsetAndTimestamp> found =
                        consumer.offsetsForTimes(Map.of(place, start.get("value").asLong()));
                consumer.seek(place, found.get(place).offset());
            }
            default -> throw new IllegalArgumentException(start.toString());
        }
        consumer.position(place, PATIENCE);
        readers.put(++lastReader, new Reader(consumer, new ArrayDeque<>()));
        return lastReader;
    }

    private static List<Map<String, Object>> take(Reader reader, int count) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (reader.ahead().size() < count) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(reader.ahead().size() + " of " + count + " records came");
            }
            reader.consumer().poll(Duration.ofMillis(500)).forEach(reader.ahead()::add);
        }
        List<Map<String, Object>> taken = new ArrayList<>();
        while (taken.size() < count) {
            taken.add(asJson(reader.ahead().remove()));
        }
        return taken;
    }

    private static Map<String, Object> asJson(ConsumerRecord<byte[], byte[]> record) {
        List<String[]> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(new String[] {header.key(), base64(header.value())});
        }
        Map<String, Object> fields = new HashMap<>();
        fields.put("key", base64(record.key()));
        fields.put("value", base64(record.value()));
        fields.put("headers", headers);
        fields.put("timestamp", record.timestamp());
        fields.put("offset", record.offset());
        return fields;
    }

    private Object close(int reader) {
        readers.remove(reader).consumer().close();
        return null;
    }

    private long offset(TopicPartition place, JsonNode at) throws Exception {
        OffsetSpec spec = switch (at.get("kind").asText()) {
            case "beginning" -> OffsetSpec.earliest();
            case "end" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(at.get("value").asLong());
        };
        return admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset();
    }

    /** What the answer says of the new topic. */
    private Map<String, Object> createTopic(JsonNode request) throws Exception {
        Map<String, String> configs = new HashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> fields = request.get("config").fields(); fields.hasNext(); ) {
            Map.Entry<String, JsonNode> field = fields.next();
            configs.put(field.getKey(), field.getValue().asText());
        }
        String name = request.get("topic").asText();
        short replicationFactor = (short) request.get("replication_factor").asInt();
        NewTopic wanted = new NewTopic(name, request.get("partitions").asInt(), replicationFactor).configs(configs);
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(request.get("validate_only").asBoolean());
        CreateTopicsResult result = admin.createTopics(List.of(wanted), options);
        result.all().get();
        Map<String, Object> created = new LinkedHashMap<>();
        created.put("partitions", result.numPartitions(name).get());
        created.put("replication_factor", result.replicationFactor(name).get());
        created.put("id", result.topicId(name).get().toString());
        created.put("retention.ms", result.config(name).get().get("retention.ms").value());
        return created;
    }

    private TopicDescription describe(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private String describeById(TopicDescription byName) throws Exception {
        var ids = org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(byName.topicId()));
        return admin.describeTopics(ids).allTopicIds().get().get(byName.topicId()).name();
    }

    private Object createPartitions(String topic, int total) throws Exception {
        return admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(total))).all().get();
    }

    private static ConfigResource brokerResource(String id) {
        return new ConfigResource(ConfigResource.Type.BROKER, id);
    }

    private List<Object[]> configs(ConfigResource resource) throws Exception {
        List<Object[]> configs = new ArrayList<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            configs.add(new Object[] {entry.name(), entry.value(), entry.isDefault()});
        }
        return configs;
    }

    private Object alterConfig(String topic, JsonNode request) throws Exception {
        String value = request.get("value").isNull() ? null : request.get("value").asText();
        ConfigEntry entry = new ConfigEntry(request.get("key").asText(), value);
        AlterConfigOp.OpType type = AlterConfigOp.OpType.forId((byte) request.get("alteration").asInt());
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(entry, type));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    private long deleteRecords(TopicPartition place, long before) throws Exception {
        Map<TopicPartition, RecordsToDelete> wanted = Map.of(place, RecordsToDelete.beforeOffset(before));
        return admin.deleteRecords(wanted).lowWatermarks().get(place).get().lowWatermark();
    }

    private long logSize(TopicPartition place, int broker) throws Exception {
        Map<String, LogDirDescription> directories =
                admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
        return directories.values().stream()
                .filter(directory -> directory.replicaInfos().containsKey(place))
                .mapToLong(directory -> directory.replicaInfos().get(place).size())
                .sum();
    }

    private Map<String, Object> cluster() throws Exception {
        DescribeClusterResult result = admin.describeCluster();
        List<Object[]> brokers = new ArrayList<>();
        for (Node node : result.nodes().get()) {
            brokers.add(new Object[] {node.id(), node.host(), node.port()});
        }
        return Map.of(
                "cluster_id", result.clusterId().get(),
                "controller_id", result.controller().get().id(),
                "brokers", brokers);
    }
}
