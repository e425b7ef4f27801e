import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of consumer groups, each polling on a thread of its own. */
final class GroupMembers {
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final String bootstrap;
    private final Map<Integer, Member> members = new HashMap<>();
    private int last = 0;

    GroupMembers(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    int start(JsonNode request) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", request.get("group").asText());
        properties.put("auto.offset.reset", request.get("reset").asText());
        properties.put("enable.auto.commit", "false");
        properties.put("fetch.max.wait.ms", "100");
        properties.put("group.protocol", request.get("protocol").asText());
        if (request.get("protocol").asText().equals("consumer")) {
            properties.put("group.remote.assignor", request.get("assignors").get(0).asText());
        } else {
            properties.put("session.timeout.ms", "6000");
            properties.put("heartbeat.interval.ms", "300");
            List<String> assignors = new ArrayList<>();
            request.get("assignors").forEach(name -> assignors.add(ASSIGNORS.get(name.asText())));
            properties.put("partition.assignment.strategy", String.join(",", assignors));
        }
        if (!request.get("instance").isNull()) {
            properties.put("group.instance.id", request.get("instance").asText());
        }
        Member member = new Member(properties, request.get("topic").asText());
        members.put(++last, member);
        member.start();
        return last;
    }

    Map<String, Object> look(int number) {
        return members.get(number).look();
    }

    Object commit(JsonNode request) throws Exception {
        Member member = members.get(request.get("member").asInt());
        TopicPartition place = new TopicPartition(member.topic, request.get("partition").asInt());
        var offset = new OffsetAndMetadata(request.get("offset").asLong(), request.get("metadata").asText());
        CompletableFuture<Void> done = new CompletableFuture<>();
        member.tasks.add(() -> {
            try {
                member.consumer.commitSync(Map.of(place, offset));
                done.complete(null);
            } catch (RuntimeException failure) {
                done.completeExceptionally(failure);
            }
        });
        return done.get();
    }

    Object stop(int number) throws InterruptedException {
        Member member = members.remove(number);
        member.leaving = true;
        member.join();
        return null;
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final ConcurrentLinkedQueue<Runnable> tasks = new ConcurrentLinkedQueue<>();
        private final TreeSet<Integer> assignment = new TreeSet<>();
        private final TreeSet<Integer> revoked = new TreeSet<>();
        private final List<long[]> read = new ArrayList<>();
        private int assignments = 0;
        private Integer error = null;
        private volatile boolean leaving = false;

        Member(Properties properties, String topic) {
            this.consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            this.topic = topic;
        }

        @Override
        public void run() {
            try {
                subscribe();
                while (!leaving) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                        synchronized (this) {
                            read.add(new long[] {record.partition(), record.offset()});
                        }
                    }
                    for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
                        task.run();
                    }
                }
            } catch (RuntimeException failure) {
                synchronized (this) {
                    error = (int) Errors.forException(failure).code();
                }
            } finally {
                consumer.close();
            }
        }

        /** A topic that begins with ^ is a regular expression of the broker's, which clients have from 4.0 on. */
        private void subscribe() {
            if (!topic.startsWith("^")) {
                consumer.subscribe(List.of(topic), this);
                return;
            }
            try {
                Class<?> type = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
                Object pattern = type.getConstructor(String.class).newInstance(topic);
                KafkaConsumer.class
                        .getMethod("subscribe", type, ConsumerRebalanceListener.class)
                        .invoke(consumer, pattern, this);
            } catch (ReflectiveOperationException failure) {
                throw new IllegalStateException(failure);
            }
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assignments++;
            partitions.forEach(each -> assignment.add(each.partition()));
        }

        @Override
        public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> assignment.remove(each.partition()));
            partitions.forEach(each -> revoked.add(each.partition()));
        }

        synchronized Map<String, Object> look() {
            Map<String, Object> seen = new HashMap<>();
            seen.put("assignment", new ArrayList<>(assignment));
            seen.put("revoked", new ArrayList<>(revoked));
            seen.put("assignments", assignments);
            seen.put("read", new ArrayList<>(read));
            seen.put("error", error);
            return seen;
        }
    }
}
