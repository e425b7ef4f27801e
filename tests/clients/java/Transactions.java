import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactions of a producer, and what a read_committed consumer sees of them. */
final class Transactions {
    private static final long PATIENCE_MS = 20_000;

    private Transactions() {}

    private static KafkaProducer<byte[], byte[]> producer(Properties connection, String id) {
        Properties settings = new Properties();
        settings.putAll(connection);
        settings.put("transactional.id", id);
        return producer(settings);
    }

    private static KafkaProducer<byte[], byte[]> producer(Properties given) {
        Properties settings = new Properties();
        settings.putAll(given);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return new KafkaProducer<>(settings);
    }

    private static ProducerRecord<byte[], byte[]> message(String topic, String value) {
        return new ProducerRecord<>(topic, 0, null, value.getBytes(StandardCharsets.UTF_8));
    }

    /** Produces values to partition 0, in one transaction. */
    static Object transact(Properties connection, String id, String topic, List<String> values, boolean commits) {
        try (KafkaProducer<byte[], byte[]> producer = producer(connection, id)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (String value : values) {
                producer.send(message(topic, value));
            }
            producer.flush();
            end(producer, commits);
            return null;
        }
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, boolean commits) {
        if (commits) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    /** The number of the error that a producer gets when another one has started with its id. */
    static int fence(Properties connection, String id, String topic) {
        try (KafkaProducer<byte[], byte[]> old = producer(connection, id);
                KafkaProducer<byte[], byte[]> young = producer(connection, id)) {
            old.initTransactions();
            old.beginTransaction();
            old.send(message(topic, "old"));
            old.flush();
            young.initTransactions();
            young.beginTransaction();
            young.send(message(topic, "new"));
            young.commitTransaction();
            try {
                old.commitTransaction();
                return 0;
            } catch (KafkaException failure) {
                return Errors.forException(failure).code();
            }
        }
    }

    /** The number of the error of a commit after the transaction's timeout. It waits until the message "after" is read. */
    static int timeOut(Properties connection, String id, String topic) {
        Properties impatient = new Properties();
        impatient.putAll(connection);
        impatient.put("transactional.id", id);
        impatient.put("transaction.timeout.ms", "1000");
        try (KafkaProducer<byte[], byte[]> late = producer(impatient);
                KafkaProducer<byte[], byte[]> other = producer(connection)) {
            late.initTransactions();
            late.beginTransaction();
            late.send(message(topic, "late"));
            late.flush();
            other.send(message(topic, "after"));
            other.flush();
            List<String> read = readCommitted(connection, new TopicPartition(topic, 0), 1);
            if (!read.equals(List.of("after"))) {
                throw new IllegalStateException("read " + read);
            }
            try {
                late.commitTransaction();
                return 0;
            } catch (KafkaException failure) {
                return Errors.forException(failure).code();
            }
        }
    }

    /** Commits an offset of a group in a transaction. */
    static Object commitOffset(
            Properties connection, String id, String group, TopicPartition partition, long offset, boolean commits) {
        try (KafkaProducer<byte[], byte[]> producer = producer(connection, id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(offset)), new ConsumerGroupMetadata(group));
            end(producer, commits);
            return null;
        }
    }

    /** The first values of a partition that a read_committed consumer gets. */
    static List<String> readCommitted(Properties connection, TopicPartition partition, int count) {
        Properties settings = new Properties();
        settings.putAll(connection);
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            List<String> values = new ArrayList<>();
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (values.size() < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    values.add(new String(each.value(), StandardCharsets.UTF_8));
                }
            }
            return values;
        }
    }
}
