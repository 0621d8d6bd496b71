package org.apache.kafka.common.test.junit;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.metadata.BrokerState;

/**
 * One node of a test's cluster: a process with its own settings, ports and folder, which keep from one start to the
 * next. A setting that the node refuses is left out at the next try, and for all tests after that.
 */
final class ProcessNode {
    private static final String COMMAND = System.getProperty("kit.broker", "tidelog");
    private static final long READY_TIMEOUT_NS = TimeUnit.SECONDS.toNanos(45);
    private static final long STOP_TIMEOUT_S = 15;
    private static final String READY = "Tidelog is ready.";
    private static final Pattern SETTING = Pattern.compile("[a-z][a-z0-9]*(?:\\.[a-z0-9]+)+");
    /** Settings that a node has refused, with what it said. */
    private static final Map<String, String> REFUSED = new ConcurrentHashMap<>();
    /** The processes of all tests, for the end of the JVM. */
    private static final Set<Process> ALL = ConcurrentHashMap.newKeySet();
    private static final Set<Integer> PORTS_IN_USE = ConcurrentHashMap.newKeySet();

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> ALL.forEach(Process::destroyForcibly)));
    }

    private final int id;
    private final boolean isBroker;
    private final boolean isController;
    private final Path data;
    private final Path log;
    private final int disks;
    private final Consumer<String> notes;
    private final int brokerPort;
    private final int controllerPort;

    private Map<String, String> settings = Map.of();
    private volatile Process process;
    private volatile boolean wasStopped;
    private long logStart;

    ProcessNode(int id, boolean isBroker, boolean isController, Path data, Path log, int disks, Consumer<String> notes) {
        this.id = id;
        this.isBroker = isBroker;
        this.isController = isController;
        this.data = data;
        this.log = log;
        this.disks = disks;
        this.notes = notes;
        brokerPort = isBroker ? freePort() : -1;
        controllerPort = isController ? freePort() : -1;
    }

    int id() {
        return id;
    }

    boolean isBroker() {
        return isBroker;
    }

    boolean isController() {
        return isController;
    }

    int brokerPort() {
        return brokerPort;
    }

    int controllerPort() {
        return controllerPort;
    }

    Map<String, String> settings() {
        return settings;
    }

    /** The settings of all nodes and of this one, before those that say which node of which cluster it is. */
    void configure(Map<String, String> given, String brokerListener, String controllerListener) {
        Map<String, String> all = new TreeMap<>(given);
        List<String> roles = new ArrayList<>();
        List<String> listeners = new ArrayList<>();
        if (isBroker) {
            roles.add("broker");
            listeners.add(brokerListener + "://localhost:" + brokerPort);
        }
        if (isController) {
            roles.add("controller");
            listeners.add(controllerListener + "://localhost:" + controllerPort);
        }
        all.put("node.id", Integer.toString(id));
        all.put("process.roles", String.join(",", roles));
        all.put("listeners", String.join(",", listeners));
        all.put("log.dirs", logDirs().stream().map(Path::toString).collect(Collectors.joining(",")));
        settings = all;
    }

    List<Path> logDirs() {
        return disks == 1 ? List.of(data) : IntStream.range(0, disks).mapToObj(disk -> data.resolve("disk" + disk)).toList();
    }

    boolean isAlive() {
        Process current = process;
        return current != null && current.isAlive();
    }

    /** As Kafka's broker object tells it: one that was shut down stays in the state of shutting down. */
    BrokerState state() {
        return isAlive() ? BrokerState.RUNNING : wasStopped ? BrokerState.SHUTTING_DOWN : BrokerState.NOT_RUNNING;
    }

    void launch() {
        try {
            Files.createDirectories(data);
            logStart = Files.exists(log) ? Files.size(log) : 0;
            settings.entrySet().removeIf(e -> {
                String said = REFUSED.get(e.getKey() + "=" + e.getValue());
                if (said != null) {
                    notes.accept(said);
                }
                return said != null;
            });
            List<String> command = new ArrayList<>(List.of(COMMAND, "up"));
            settings.forEach((key, value) -> command.addAll(List.of("--set", key + "=" + value)));
            process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile()))
                .start();
            ALL.add(process);
            wasStopped = false;
        } catch (IOException e) {
            throw new IllegalStateException("cannot start node " + id, e);
        }
    }

    /**
     * Wait until all of these serve: for a broker, until the controller has let it in. A node that refuses a setting is
     * started again at once, for the others may be waiting for it.
     */
    static void awaitReady(Collection<ProcessNode> nodes) throws InterruptedException {
        long end = System.nanoTime() + READY_TIMEOUT_NS;
        List<ProcessNode> awaited = new ArrayList<>(nodes);
        while (true) {
            awaited.removeIf(ProcessNode::isReady);
            if (awaited.isEmpty()) {
                return;
            }
            if (System.nanoTime() > end) {
                ProcessNode late = awaited.get(0);
                throw new IllegalStateException("node " + late.id + " does not serve: " + late.printed());
            }
            Thread.sleep(10);
        }
    }

    private boolean isReady() {
        boolean isAlive = process.isAlive();
        String printed = printed();
        if (!printed.contains(READY) && !isAlive) {
            ALL.remove(process);
            leaveOutRefused(printed);
            launch();
        }
        return printed.contains(READY);
    }

    private void leaveOutRefused(String printed) {
        String last = printed.lines().filter(line -> line.startsWith("error:")).reduce("", (a, b) -> b);
        Matcher matcher = SETTING.matcher(last);
        while (matcher.find()) {
            String name = matcher.group();
            if (settings.containsKey(name)) {
                REFUSED.put(name + "=" + settings.get(name), name + "=" + settings.get(name) + "\t" + last);
                return;
            }
        }
        throw new IllegalStateException("node " + id + " did not start: " + printed);
    }

    private String printed() {
        try (RandomAccessFile file = new RandomAccessFile(log.toFile(), "r")) {
            byte[] bytes = new byte[(int) Math.max(0, file.length() - logStart)];
            file.seek(logStart);
            file.readFully(bytes);
            return new String(bytes, StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new IllegalStateException("cannot read " + log, e);
        }
    }

    /** SIGTERM, without waiting. */
    void beginStop() {
        Process current = process;
        if (current != null) {
            wasStopped = true;
            current.destroy();
        }
    }

    void awaitStop() {
        Process current = process;
        if (current == null) {
            return;
        }
        try {
            if (!current.waitFor(STOP_TIMEOUT_S, TimeUnit.SECONDS)) {
                notes.accept("stop\tnode " + id + " did not stop within " + STOP_TIMEOUT_S + " s after SIGTERM");
                current.destroyForcibly().waitFor(5, TimeUnit.SECONDS);
            }
        } catch (InterruptedException e) {
            current.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        ALL.remove(current);
    }

    void stop() {
        beginStop();
        awaitStop();
    }

    void start() {
        if (isAlive()) {
            return;
        }
        launch();
        try {
            awaitReady(List.of(this));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("cannot start node " + id, e);
        }
    }

    void releasePorts() {
        PORTS_IN_USE.remove(brokerPort);
        PORTS_IN_USE.remove(controllerPort);
    }

    /** Below the range from which the kernel takes ports for outgoing connections: it stays free while the node is down. */
    private static int freePort() {
        for (int attempt = 0; attempt < 200; attempt++) {
            int port = ThreadLocalRandom.current().nextInt(20_000, 32_000);
            try (ServerSocket probe = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                if (PORTS_IN_USE.add(port)) {
                    return port;
                }
            } catch (IOException e) {
                // taken; the next one is tried
            }
        }
        throw new IllegalStateException("no free port between 20000 and 32000");
    }
}
