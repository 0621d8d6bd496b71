package org.apache.kafka.common.test.junit;

import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.MetadataCache;
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
    private final int id;
    private final KafkaBroker broker = (KafkaBroker) Proxy.newProxyInstance(KafkaBroker.class.getClassLoader(),
        new Class<?>[] {KafkaBroker.class}, (self, method, args) -> answer(self, method.getName(), args));
    private LogManager logManager;
    private ReplicaManager replicaManager;

    ProcessBroker(ProcessCluster cluster, int id) {
        this.cluster = cluster;
        this.id = id;
    }

    KafkaBroker broker() {
        return broker;
    }

    private Object answer(Object self, String method, Object[] args) throws InterruptedException {
        return switch (method) {
            case "isShutdown" -> !cluster.process().isAlive();
            case "brokerState" -> cluster.process().isAlive() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "boundPort" -> cluster.port();
            case "clusterId" -> cluster.clusterId();
            case "config" -> config();
            case "metadataCache" -> metadataCache();
            case "logManager" -> logManager();
            case "replicaManager" -> replicaManager();
            case "shutdown" -> {
                cluster.shutdownBroker(id);
                yield null;
            }
            case "startup" -> {
                cluster.startBroker(id);
                yield null;
            }
            case "awaitShutdown" -> {
                cluster.process().waitFor();
                yield null;
            }
            case "hashCode" -> System.identityHashCode(self);
            case "equals" -> self == args[0];
            case "toString" -> "broker process on port " + cluster.port();
            default -> throw cluster.lacks("KafkaBroker." + method);
        };
    }

    private KafkaConfig config() {
        Properties properties = new Properties();
        properties.putAll(cluster.settings());
        properties.put("process.roles", "broker,controller");
        properties.put("listeners", "PLAINTEXT://127.0.0.1:" + cluster.port() + ",CONTROLLER://127.0.0.1:0");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
        properties.put("controller.quorum.voters", id + "@127.0.0.1:1");
        properties.put("log.dirs", cluster.data().toString());
        return new KafkaConfig(properties, false);
    }

    private MetadataCache metadataCache() {
        return (MetadataCache) Proxy.newProxyInstance(MetadataCache.class.getClassLoader(),
            new Class<?>[] {MetadataCache.class}, (self, method, args) -> switch (method.getName()) {
                case "numPartitions" -> topic((String) args[0]).map(topic -> topic.partitions().size());
                case "contains" -> args[0] instanceof TopicPartition wanted
                    ? leader(wanted).isPresent()
                    : topic((String) args[0]).isPresent();
                default -> throw cluster.lacks("MetadataCache." + method.getName());
            });
    }

    private LogManager logManager() {
        if (logManager == null) {
            logManager = part(LogManager.class, call -> switch (call.getMethod().getName()) {
                case "getLog" -> log(call.getArgument(0), call.getArgument(1));
                case "liveLogDirs" -> CollectionConverters.asScala(List.of(cluster.data().toFile())).toSeq();
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
            replicaManager = part(ReplicaManager.class, call -> {
                if (!call.getMethod().getName().equals("onlinePartition")) {
                    throw cluster.lacks("ReplicaManager." + call.getMethod().getName());
                }
                return option(leader(call.getArgument(0)).map(this::partition));
            });
        }
        return replicaManager;
    }

    private Partition partition(int leader) {
        return part(Partition.class, call -> {
            if (!call.getMethod().getName().equals("leaderIdIfLocal")) {
                throw cluster.lacks("Partition." + call.getMethod().getName());
            }
            return option(Optional.of(leader).filter(local -> local == id));
        });
    }

    private static <T> T part(Class<T> type, Answer<?> answer) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(answer));
    }

    private static <T> Option<T> option(Optional<T> value) {
        return Option.apply(value.orElse(null));
    }

    // ---- questions to the process

    private String setting(String name) throws ExecutionException, InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(id));
        try (Admin admin = cluster.admin()) {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
        }
    }

    private Optional<TopicDescription> topic(String name) throws ExecutionException, InterruptedException {
        try (Admin admin = cluster.admin()) {
            return Optional.of(admin.describeTopics(List.of(name)).allTopicNames().get().get(name));
        } catch (ExecutionException e) {
            if (e.getCause() instanceof UnknownTopicOrPartitionException) {
                return Optional.empty();
            }
            throw e;
        }
    }

    private Optional<Integer> leader(TopicPartition wanted) throws ExecutionException, InterruptedException {
        return topic(wanted.topic()).flatMap(topic -> topic.partitions().stream()
            .filter(each -> each.partition() == wanted.partition() && each.leader() != null)
            .findFirst().map(each -> each.leader().id()));
    }

    private Option<UnifiedLog> log(TopicPartition wanted, boolean future) throws ExecutionException, InterruptedException {
        try (Admin admin = cluster.admin()) {
            boolean found = admin.describeLogDirs(List.of(id)).allDescriptions().get().get(id).values().stream()
                .map(directory -> directory.replicaInfos().get(wanted))
                .anyMatch(replica -> replica != null && replica.isFuture() == future);
            return option(Optional.of(wanted).filter(any -> found).map(any -> part(UnifiedLog.class, call -> {
                throw cluster.lacks("UnifiedLog." + call.getMethod().getName());
            })));
        }
    }
}
