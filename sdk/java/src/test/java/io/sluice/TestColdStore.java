package io.sluice;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

/** Reads that wait for an object store wait together. */
class TestColdStore {
  /** A busy machine may be late once. */
  private static final int ATTEMPTS = 3;
  private static final int BLOCK = 64 << 10;
  private static final int BLOCKS = 96 * ATTEMPTS;
  private static final long WAIT = 20_000_000;

  @Test
  void readsOfOneStreamWaitTogether() throws Exception {
    String program = System.getProperty("sluice.test.program", "");
    assumeTrue(!program.isEmpty(), "no program that makes a volume");
    java.nio.file.Path work = Files.createTempDirectory("cold");
    String meta = "sqlite3://" + work.resolve("meta.db");
    byte[] content = new byte[BLOCK * BLOCKS];
    new Random(3).nextBytes(content);
    try (SlowStore store = new SlowStore()) {
      Process format =
          new ProcessBuilder(
                  program, "format", meta, "cold", "--storage", "s3", "--bucket", store.bucket(),
                  "--access-key", "a", "--secret-key", "b", "--block-size", "64")
              .redirectErrorStream(true)
              .start();
      String said = new String(format.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertEquals(0, format.waitFor(), said);
      Configuration conf = new Configuration();
      conf.set("sluice.meta", meta);
      conf.set("sluice.prefetch", "0");
      Path path = new Path("/f");
      try (FileSystem fs = Volumes.fileSystem(conf)) {
        Volumes.write(fs, path, content);
      }
      // The cache of the one that wrote is gone.
      store.readNanos = WAIT;
      try (FileSystem fs = Volumes.fileSystem(conf);
          FSDataInputStream in = fs.open(path)) {
        boolean fast = false;
        for (int attempt = 0; attempt < ATTEMPTS && !fast; attempt++) {
          fast = together(in, content, 96 * attempt);
        }
        assertTrue(fast, "reads wait one after another");
      }
    }
  }

  /** Whether reads by many threads, and of many ranges, take a quarter of one after another. */
  private static boolean together(FSDataInputStream in, byte[] content, int base) throws Exception {
    long one = nanos(() -> read(in, content, base, 32));
    ExecutorService threads = Executors.newFixedThreadPool(16);
    long many = nanos(() -> {
      List<Future<?>> running = new ArrayList<>();
      for (int t = 0; t < 16; t++) {
        int first = base + 32 + 2 * t;
        running.add(threads.submit(() -> {
          read(in, content, first, 2);
          return null;
        }));
      }
      for (Future<?> thread : running) {
        thread.get();
      }
    });
    threads.shutdown();
    long vectored = nanos(() -> {
      List<FileRange> ranges = new ArrayList<>();
      for (int i = base + 64; i < base + 96; i++) {
        ranges.add(FileRange.createFileRange(place(i), 4096));
      }
      in.readVectored(ranges, ByteBuffer::allocate);
      for (FileRange range : ranges) {
        ByteBuffer data = range.getData().get(60, TimeUnit.SECONDS);
        assertEquals(ByteBuffer.wrap(content, (int) range.getOffset(), 4096), data);
      }
    });
    System.err.printf(
        "32 reads of 4 KiB that take %d ms each: one after another %.1f ms, by 16 threads %.1f ms,"
            + " as ranges %.1f ms%n",
        WAIT / 1_000_000, one / 1e6, many / 1e6, vectored / 1e6);
    assertTrue(one >= 8 * WAIT, "the store did not wait");
    return many * 4 <= one && vectored * 4 <= one;
  }

  /** Somewhere in a block of its own, far from the one before: nothing is read ahead. */
  private static int place(int number) {
    return number * 101 % BLOCKS * BLOCK + 5;
  }

  private interface Run {
    void run() throws Exception;
  }

  private static long nanos(Run run) throws Exception {
    long begin = System.nanoTime();
    run.run();
    return System.nanoTime() - begin;
  }

  /** Reads 4 KiB of some blocks, one after another. */
  private static void read(FSDataInputStream in, byte[] content, int first, int count) throws Exception {
    byte[] part = new byte[4096];
    for (int i = first; i < first + count; i++) {
      in.readFully(place(i), part);
      assertEquals(ByteBuffer.wrap(content, place(i), part.length), ByteBuffer.wrap(part));
    }
  }
}
