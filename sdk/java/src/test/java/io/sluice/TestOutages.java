package io.sluice;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletionService;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.junit.jupiter.api.Test;

/**
 * Many threads work while the servers of the volume go away and come back, until the file in the
 * variable SLUICE_TEST_UNTIL exists: `sluice-e2e with-outages` does that.
 */
class TestOutages {
  private static final int USERS = 6;
  private static final int EACH = 4;
  private static final int KEPT = 4;
  /** An outage, and what waited meanwhile. */
  private static final long LONGEST_STEP = TimeUnit.MINUTES.toNanos(2);

  /** A user who works through two clients: one writes what the other reads. */
  private static final class Worker {
    private final FileSystem writer;
    private final FileSystem reader;
    private final Path dir;
    private final Random random;
    /** What is in the files. */
    private final Map<String, byte[]> files = new TreeMap<>();
    private int steps;
    private long longest;

    Worker(FileSystem writer, FileSystem reader, Path dir, int seed) {
      this.writer = writer;
      this.reader = reader;
      this.dir = dir;
      random = new Random(seed);
    }

    Worker until(java.nio.file.Path file) throws Exception {
      writer.mkdirs(dir);
      for (int last = 3; last > 0; last -= Files.exists(file) ? 1 : 0) {
        long begin = System.nanoTime();
        step();
        longest = Math.max(longest, System.nanoTime() - begin);
        assertTrue(longest < LONGEST_STEP, "a step took " + longest / 1_000_000 + " ms");
      }
      return this;
    }

    private void step() throws Exception {
      String name = String.format("f%08d", steps++);
      Path path = new Path(dir, name);
      Path before = new Path(dir, "." + name);
      byte[] content = new byte[1 + random.nextInt(200_000)];
      random.nextBytes(content);
      int middle = random.nextInt(content.length);
      try (FSDataOutputStream out = writer.create(before, false)) {
        out.write(content, 0, middle);
        out.hflush();
        assertEquals(middle, reader.getFileStatus(before).getLen());
        out.write(content, middle, content.length - middle);
      }
      assertTrue(writer.rename(before, path), "rename to " + path);
      files.put(name, content);
      check(reader, name);
      byte[] more = new byte[random.nextInt(1000)];
      random.nextBytes(more);
      try (FSDataOutputStream out = reader.append(path)) {
        out.write(more);
        out.hsync();
      }
      byte[] whole = ByteBuffer.allocate(content.length + more.length).put(content).put(more).array();
      files.put(name, whole);
      ranges(path, whole);
      if (files.size() > KEPT) {
        String oldest = files.keySet().iterator().next();
        assertTrue(reader.delete(new Path(dir, oldest), false), "delete of " + oldest);
        files.remove(oldest);
      }
      assertEquals(files.keySet(), names(writer));
    }

    private void ranges(Path path, byte[] whole) throws Exception {
      List<FileRange> ranges = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        int offset = random.nextInt(whole.length);
        ranges.add(FileRange.createFileRange(offset, random.nextInt(whole.length - offset)));
      }
      try (FSDataInputStream in = writer.open(path)) {
        in.readVectored(ranges, ByteBuffer::allocate);
        for (FileRange range : ranges) {
          ByteBuffer data = range.getData().get(2, TimeUnit.MINUTES);
          assertEquals(ByteBuffer.wrap(whole, (int) range.getOffset(), range.getLength()), data);
        }
      }
    }

    private void check(FileSystem fs, String name) throws Exception {
      assertArrayEquals(files.get(name), Volumes.read(fs, new Path(dir, name)), name);
    }

    private Set<String> names(FileSystem fs) throws Exception {
      Set<String> names = new TreeSet<>();
      for (FileStatus status : fs.listStatus(dir)) {
        names.add(status.getPath().getName());
      }
      return names;
    }

    void verify(FileSystem fs) throws Exception {
      assertEquals(files.keySet(), names(fs));
      for (String name : files.keySet()) {
        check(fs, name);
      }
    }
  }

  /** A client of its own, which shows every second that it lives. */
  private static Configuration client(int memory) {
    Configuration conf = new Configuration();
    conf.set("sluice.heartbeat", "1");
    conf.set("sluice.memory-size", Integer.toString(memory));
    return conf;
  }

  @Test
  void nobodySeesMoreThanADelay() throws Exception {
    String until = System.getenv("SLUICE_TEST_UNTIL");
    assumeTrue(until != null, "nobody takes the servers away");
    int sessions = Native.openHandles(false);
    int open = Native.openHandles(true);
    Path root = Volumes.fresh("outages");
    List<FileSystem> all = new ArrayList<>();
    List<Worker> workers = new ArrayList<>();
    try (FileSystem fs = Volumes.fileSystem(client(64))) {
      fs.mkdirs(root);
      fs.setPermission(root, new FsPermission((short) 0777));
      for (int i = 0; i < USERS * EACH; i++) {
        FileSystem writer = Volumes.as(client(64), "user" + i / EACH, "staff");
        FileSystem reader = Volumes.as(client(65), "user" + i / EACH, "staff");
        all.add(writer);
        all.add(reader);
        workers.add(new Worker(writer, reader, new Path(root, "dir" + i), i));
      }
      work(workers, Paths.get(until));
      for (FileSystem one : all) {
        one.close();
      }
    }
    try (FileSystem fresh = Volumes.fileSystem(client(66))) {
      for (Worker worker : workers) {
        worker.verify(fresh);
      }
      fresh.delete(root, true);
    }
    assertEquals(sessions, Native.openHandles(false));
    assertEquals(open, Native.openHandles(true));
  }

  private static void work(List<Worker> workers, java.nio.file.Path until) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(workers.size());
    try {
      CompletionService<Worker> running = new ExecutorCompletionService<>(threads);
      for (Worker worker : workers) {
        running.submit(() -> worker.until(until));
      }
      int steps = 0;
      long longest = 0;
      for (int i = 0; i < workers.size(); i++) {
        Worker done = running.take().get();
        steps += done.steps;
        longest = Math.max(longest, done.longest);
      }
      System.err.println(steps + " steps, the longest took " + longest / 1_000_000 + " ms");
      assertTrue(longest > TimeUnit.SECONDS.toNanos(5), "nobody noticed that a server was away");
    } finally {
      threads.shutdownNow();
    }
  }
}
