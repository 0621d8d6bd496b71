package org.apache.kafka.common.test.junit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.message.DescribeGroupsRequestData;
import org.apache.kafka.common.message.DescribeLogDirsRequestData;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.DescribeGroupsRequest;
import org.apache.kafka.common.requests.DescribeGroupsResponse;
import org.apache.kafka.common.requests.DescribeLogDirsRequest;
import org.apache.kafka.common.requests.DescribeLogDirsResponse;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import org.mockito.stubbing.Answer;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Kafka's broker object and some of its parts, as far as the process behind them can answer over the protocol. What it
 * cannot answer makes the test one that "needs in-process broker internals".
 */
final class ProcessBroker {
    private final ProcessCluster cluster;
    private final ProcessNode node;
    private final KafkaBroker broker = (KafkaBroker) Proxy.newProxyInstance(KafkaBroker.class.getClassLoader(),
        new Class<?>[] {KafkaBroker.class}, (self, method, args) -> answer(self, method.getName(), args));
    private LogManager logManager;
    private ReplicaManager replicaManager;
    private Metrics metrics;

    ProcessBroker(ProcessCluster cluster, ProcessNode node) {
        this.cluster = cluster;
        this.node = node;
    }

    int id() {
        return node.id();
    }

    boolean isAlive() {
        return node.isAlive();
    }

    KafkaBroker broker() {
        return broker;
    }

    private Object answer(Object self, String method, Object[] args) {
        return switch (method) {
            case "isShutdown" -> !node.isAlive();
            case "brokerState" -> node.state();
            case "boundPort" -> node.brokerPort();
            case "clusterId" -> cluster.clusterId();
            case "config" -> config();
            case "metadataCache" -> metadataCache();
            case "logManager" -> logManager();
            case "replicaManager" -> replicaManager();
            case "metrics" -> metrics();
            case "shutdown" -> {
                node.stop();
                yield null;
            }
            case "startup" -> {
                node.start();
                yield null;
            }
            case "awaitShutdown" -> {
                node.awaitStop();
                yield null;
            }
            case "hashCode" -> System.identityHashCode(self);
            case "equals" -> self == args[0];
            case "toString" -> "broker process " + node.id() + " on port " + node.brokerPort();
            default -> throw cluster.lacks("KafkaBroker." + method);
        };
    }

    private KafkaConfig config() {
        Properties properties = new Properties();
        properties.putAll(node.settings());
        return new KafkaConfig(properties, false);
    }

    private MetadataCache metadataCache() {
        return (MetadataCache) Proxy.newProxyInstance(MetadataCache.class.getClassLoader(),
            new Class<?>[] {MetadataCache.class}, (self, method, args) -> switch (method.getName()) {
                case "numPartitions" -> Optional.of(partitions((String) args[0])).filter(count -> count > 0);
                case "contains" -> args[0] instanceof TopicPartition wanted
                    ? partition(wanted).isPresent()
                    : partitions((String) args[0]) > 0;
                default -> throw cluster.lacks("MetadataCache." + method.getName());
            });
    }

    private LogManager logManager() {
        if (logManager == null) {
            logManager = part(LogManager.class, call -> switch (call.getMethod().getName()) {
                case "getLog" -> option(log(call.getArgument(0), call.getArgument(1)));
                case "liveLogDirs" -> CollectionConverters.asScala(
                    node.logDirs().stream().map(java.nio.file.Path::toFile).toList()).toSeq();
                case "producerStateManagerConfig" -> new ProducerStateManagerConfig(
                    Integer.parseInt(setting("producer.id.expiration.ms")),
                    Boolean.parseBoolean(setting("transaction.partition.verification.enable")));
                default -> throw cluster.lacks("LogManager." + call.getMethod().getName());
            });
        }
        return logManager;
    }

    private ReplicaManager replicaManager() {
        if (replicaManager == null) {
            replicaManager = part(ReplicaManager.class, call -> switch (call.getMethod().getName()) {
                case "onlinePartition" -> option(partition((TopicPartition) call.getArgument(0))
                    .filter(found -> found.replicaIds.contains(node.id())).map(this::replica));
                case "localLog" -> option(log(call.getArgument(0), false));
                case "logManager" -> logManager();
                default -> throw cluster.lacks("ReplicaManager." + call.getMethod().getName());
            });
        }
        return replicaManager;
    }

    private Partition replica(MetadataResponse.PartitionMetadata found) {
        return part(Partition.class, call -> {
            if (!call.getMethod().getName().equals("leaderIdIfLocal")) {
                throw cluster.lacks("Partition." + call.getMethod().getName());
            }
            return option(found.leaderId.filter(leader -> leader == node.id()));
        });
    }

    private Optional<UnifiedLog> log(TopicPartition wanted, boolean future) {
        return Optional.of(wanted).filter(any -> hasLog(wanted, future)).map(any -> part(UnifiedLog.class, call -> {
            if (!call.getMethod().getName().equals("highWatermark")) {
                throw cluster.lacks("UnifiedLog." + call.getMethod().getName());
            }
            return highWatermark(wanted);
        }));
    }

    /** The one metric that tests read: how many partitions of the group coordinator are here. */
    private Metrics metrics() {
        if (metrics == null) {
            metrics = part(Metrics.class, call -> switch (call.getMethod().getName()) {
                case "metricName" -> metricName(call.getArguments());
                case "metric" -> {
                    MetricName name = call.getArgument(0);
                    if (!name.name().equals("num-partitions") || !"active".equals(name.tags().get("state"))) {
                        throw cluster.lacks("Metrics." + name.name());
                    }
                    yield part(KafkaMetric.class, value -> coordinatedPartitions());
                }
                default -> throw cluster.lacks("Metrics." + call.getMethod().getName());
            });
        }
        return metrics;
    }

    private MetricName metricName(Object[] args) {
        if (args.length != 3 || !(args[2] instanceof Map<?, ?> tags)) {
            throw cluster.lacks("Metrics." + args[0]);
        }
        return new MetricName((String) args[0], (String) args[1], "", tags.entrySet().stream()
            .collect(Collectors.toMap(tag -> (String) tag.getKey(), tag -> (String) tag.getValue())));
    }

    private static <T> T part(Class<T> type, Answer<?> answer) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(answer));
    }

    private static <T> Option<T> option(Optional<T> value) {
        return Option.apply(value.orElse(null));
    }

    // ---- questions to the process

    private <T extends AbstractResponse> T ask(AbstractRequest request) {
        try {
            return IntegrationTestUtils.connectAndReceive(request, node.brokerPort());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private MetadataResponse metadata(String topic) {
        return ask(new MetadataRequest.Builder(List.of(topic), false).build());
    }

    private Optional<MetadataResponse.TopicMetadata> topic(String name) {
        return metadata(name).topicMetadata().stream().filter(found -> found.error() == Errors.NONE).findFirst();
    }

    /** How many partitions a topic has as far as this broker knows; 0 when it knows none of the name. */
    int partitions(String topic) {
        return topic(topic).map(found -> found.partitionMetadata().size()).orElse(0);
    }

    private Optional<MetadataResponse.PartitionMetadata> partition(TopicPartition wanted) {
        return topic(wanted.topic()).flatMap(found -> found.partitionMetadata().stream()
            .filter(each -> each.partition() == wanted.partition()).findFirst());
    }

    /** Whether this broker serves and knows that these do. */
    boolean sees(Set<Integer> brokers) {
        if (!node.isAlive()) {
            return false;
        }
        MetadataResponse known = ask(MetadataRequest.Builder.allTopics().build());
        return known.brokers().stream().map(Node::id).collect(Collectors.toSet()).containsAll(brokers);
    }

    /** The folders of a topic's partitions, also of those that are being deleted. */
    List<String> foldersOf(String topic) {
        return node.logDirs().stream().map(directory -> directory.toFile().list()).filter(Objects::nonNull)
            .flatMap(Arrays::stream).filter(name -> name.startsWith(topic + "-") || name.startsWith(topic + "."))
            .filter(name -> name.substring(topic.length()).matches("-\\d+|[.-].*-delete")).toList();
    }

    private boolean hasLog(TopicPartition wanted, boolean future) {
        DescribeLogDirsResponse response = ask(
            new DescribeLogDirsRequest.Builder(new DescribeLogDirsRequestData().setTopics(null)).build());
        return response.data().results().stream().flatMap(directory -> directory.topics().stream())
            .filter(topic -> topic.name().equals(wanted.topic())).flatMap(topic -> topic.partitions().stream())
            .anyMatch(each -> each.partitionIndex() == wanted.partition() && each.isFutureKey() == future);
    }

    /** What a consumer that reads from this replica is told. */
    private long highWatermark(TopicPartition wanted) {
        Uuid topicId = topic(wanted.topic()).orElseThrow().topicId();
        short version = ApiKeys.FETCH.latestVersion();
        FetchResponse response = ask(FetchRequest.Builder.forConsumer(version, 0, 1, Map.of(wanted,
            new FetchRequest.PartitionData(topicId, 0, 0, 1, Optional.empty()))).build(version));
        return response.responseData(Map.of(topicId, wanted.topic()), version).get(wanted).highWatermark();
    }

    /** The partitions of the offsets topic for whose groups this broker answers. */
    private long coordinatedPartitions() {
        int count = partitions(Topic.GROUP_METADATA_TOPIC_NAME);
        Collection<String> groups = IntStream.range(0, 100 * count).mapToObj(i -> "group-" + i)
            .collect(Collectors.toMap(group -> Utils.abs(group.hashCode()) % count, group -> group, (a, b) -> a)).values();
        DescribeGroupsResponse response = ask(new DescribeGroupsRequest.Builder(
            new DescribeGroupsRequestData().setGroups(List.copyOf(groups))).build());
        return response.data().groups().stream().map(group -> Errors.forCode(group.errorCode()))
            .filter(error -> error != Errors.NOT_COORDINATOR && error != Errors.COORDINATOR_LOAD_IN_PROGRESS
                && error != Errors.COORDINATOR_NOT_AVAILABLE).count();
    }

    private String setting(String name) throws ExecutionException, InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(node.id()));
        try (Admin admin = cluster.admin()) {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
        }
    }
}
