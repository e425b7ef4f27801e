import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What the admin client can do with consumer groups. */
final class Groups {
    private final Admin admin;

    Groups(Admin admin) {
        this.admin = admin;
    }

    @SuppressWarnings("removal")
    List<String> list() throws Exception {
        return admin.listConsumerGroups().all().get().stream().map(ConsumerGroupListing::groupId).toList();
    }

    @SuppressWarnings({"deprecation", "removal"})
    Map<String, Object> describe(String group) throws Exception {
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        return Map.of(
                "state", found.state().toString(),
                "assignor", found.partitionAssignor(),
                "members", found.members().size());
    }

    Map<Integer, Object[]> offsets(String group, String topic) throws Exception {
        Map<Integer, Object[]> offsets = new HashMap<>();
        for (Map.Entry<TopicPartition, OffsetAndMetadata> entry :
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet()) {
            if (entry.getKey().topic().equals(topic)) {
                offsets.put(entry.getKey().partition(), new Object[] {entry.getValue().offset(), entry.getValue().metadata()});
            }
        }
        return offsets;
    }

    Object delete(String group) throws Exception {
        return admin.deleteConsumerGroups(List.of(group)).all().get();
    }

    Object deleteOffset(String group, TopicPartition place) throws Exception {
        return admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
    }
}
