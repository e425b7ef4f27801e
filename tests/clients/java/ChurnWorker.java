import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Several consumers of one group (KIP-848) in a process: the commands and events of tests/groups/churn_worker.py. */
public final class ChurnWorker {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final double COMMIT_SECONDS = 0.4;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("group.protocol", "consumer");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("reconnect.backoff.max.ms", "500");
        properties.put("default.api.timeout.ms", "20000");
        Map<String, Member> members = new HashMap<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ", 3);
            if (words[0].equals("start")) {
                Member member = new Member(words[1], properties, arguments[2]);
                members.put(words[1], member);
                member.start();
            } else {
                members.remove(words[1]).leaving = true;
            }
        }
    }

    /** The machine's monotonic time, which Python's time.monotonic returns, too. */
    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static synchronized void report(String member, String event, Map<String, Object> fields) {
        Map<String, Object> all = new LinkedHashMap<>(Map.of("at", now(), "member", member, "event", event));
        all.putAll(fields);
        try {
            System.out.println(JSON.writeValueAsString(all));
        } catch (java.io.IOException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final Set<Integer> owned = new TreeSet<>();
        private final Map<Integer, Long> next = new HashMap<>();
        private final Map<Integer, Long> uncommitted = new TreeMap<>();
        private final Map<Integer, Long> refused = new TreeMap<>();
        private double commitAt = 0;
        volatile boolean leaving = false;

        Member(String name, Properties properties, String topic) {
            super(name);
            this.topic = topic;
            consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void run() {
            consumer.subscribe(List.of(topic), this);
            while (!leaving) {
                consumer.poll(Duration.ofMillis(200)).forEach(this::take);
                if (!(uncommitted.isEmpty() && refused.isEmpty()) && now() >= commitAt) {
                    Set<Integer> all = new TreeSet<>(uncommitted.keySet());
                    all.addAll(refused.keySet());
                    refused.putAll(commit(all));
                }
            }
            consumer.close();
            report(getName(), "closed", Map.of());
        }

        private void take(ConsumerRecord<byte[], byte[]> record) {
            int partition = record.partition();
            if (!owned.contains(partition)) {
                return;
            }
            Long expected = next.get(partition);
            if (expected != null && record.offset() != expected) {
                report(getName(), "skipped", Map.of("partition", partition, "expected", expected, "offset", record.offset()));
            }
            if (!uncommitted.containsKey(partition)) {
                report(getName(), "began", Map.of("partition", partition, "offset", record.offset()));
            }
            next.put(partition, record.offset() + 1);
            uncommitted.put(partition, record.offset() + 1);
        }

        /** Commits, reports what was read, and returns the offsets whose commit was refused. */
        private Map<Integer, Long> commit(Collection<Integer> partitions) {
            commitAt = now() + COMMIT_SECONDS;
            Map<Integer, Long> read = new TreeMap<>();
            Map<Integer, Long> ends = new TreeMap<>();
            for (int partition : partitions) {
                Long again = refused.remove(partition);
                Long fresh = uncommitted.remove(partition);
                if (fresh != null) {
                    read.put(partition, fresh);
                }
                if (fresh != null || again != null) {
                    ends.put(partition, fresh != null ? fresh : again);
                }
            }
            if (!read.isEmpty()) {
                report(getName(), "read", Map.of("ends", read));
            }
            if (ends.isEmpty()) {
                return Map.of();
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            ends.forEach((partition, end) -> offsets.put(new TopicPartition(topic, partition), new OffsetAndMetadata(end)));
            double began = now();
            try {
                consumer.commitSync(offsets);
                report(getName(), "commit", Map.of("began", began, "ends", ends));
                return Map.of();
            } catch (KafkaException failure) {
                // The member was removed or is behind: which of the two, this exception does not tell.
                Errors error = failure instanceof CommitFailedException ? Errors.STALE_MEMBER_EPOCH : Errors.forException(failure);
                report(getName(), "refused", Map.of("began", began, "code", error.code()));
                ends.keySet().retainAll(owned);
                return ends;
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                next.remove(each.partition());
                forget(each.partition());
                owned.add(each.partition());
            }
            report(getName(), "assign", Map.of("partitions", numbers(partitions)));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            List<Integer> numbers = numbers(partitions);
            commit(numbers);
            numbers.forEach(owned::remove);
            report(getName(), "revoke", Map.of("partitions", numbers));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            List<Integer> numbers = numbers(partitions);
            numbers.forEach(this::forget);
            numbers.forEach(owned::remove);
            report(getName(), "lost", Map.of("partitions", numbers));
        }

        private void forget(int partition) {
            uncommitted.remove(partition);
            refused.remove(partition);
        }

        private static List<Integer> numbers(Collection<TopicPartition> partitions) {
            List<Integer> numbers = new ArrayList<>();
            partitions.forEach(each -> numbers.add(each.partition()));
            return numbers;
        }
    }
}
