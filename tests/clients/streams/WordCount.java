import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A word count with Kafka Streams, exactly once.
 *
 * <p>{@code java -cp ... WordCount host:port application input output state-directory instance}. Lines of words come in,
 * and every word goes out with its new count. Words are brought together in a repartition topic, and counted in a store
 * on disk that has a changelog topic. Runs until its standard input ends.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws IOException {
        String instance = arguments[5];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("replication.factor", "-1");
        // Without the cache every count goes out, not only the last one before a commit.
        settings.put("statestore.cache.max.bytes", "0");
        // A static member comes back at once; the group does not wait for the session of a process that was killed.
        settings.put("main.consumer.group.instance.id", instance);
        settings.put("main.consumer.session.timeout.ms", "6000");
        settings.put("consumer.max.poll.records", "100");
        KafkaStreams streams = new KafkaStreams(topology(arguments[2], arguments[3]), settings);
        streams.setUncaughtExceptionHandler(
                failure -> {
                    failure.printStackTrace();
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        streams.setStateListener(
                (now, before) -> {
                    if (now == KafkaStreams.State.ERROR) {
                        Runtime.getRuntime().halt(1);
                    }
                });
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        streams.close(Duration.ofSeconds(30));
    }

    private static Topology topology(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(String::valueOf)
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }
}
