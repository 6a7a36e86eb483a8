package io.sluice;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Files that are read and written in every way. */
class TestStreams {
  private static final int SIZE = 9 << 20;

  private FileSystem fs;
  private Path dir;
  private final byte[] content = new byte[SIZE];

  @BeforeEach
  void open() throws Exception {
    fs = Volumes.fileSystem();
    dir = Volumes.fresh("streams");
    new Random(7).nextBytes(content);
    Volumes.write(fs, new Path(dir, "f"), content);
  }

  @AfterEach
  void close() throws Exception {
    fs.delete(dir, true);
    fs.close();
  }

  @Test
  void manyThreadsReadOneStreamAtTheirOwnPlaces() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(16);
    try (FSDataInputStream in = fs.open(new Path(dir, "f"))) {
      List<Future<?>> running = new ArrayList<>();
      for (int t = 0; t < 16; t++) {
        long seed = t;
        running.add(threads.submit(() -> {
          Random random = new Random(seed);
          for (int i = 0; i < 200; i++) {
            int length = 1 + random.nextInt(100_000);
            int at = random.nextInt(SIZE - length);
            if (i % 2 == 0) {
              byte[] part = new byte[length];
              in.readFully(at, part);
              assertArrayEquals(Arrays.copyOfRange(content, at, at + length), part);
            } else {
              ByteBuffer part = i % 4 == 1 ? ByteBuffer.allocateDirect(length) : ByteBuffer.allocate(length);
              in.readFully(at, part);
              part.flip();
              assertEquals(ByteBuffer.wrap(content, at, length), part);
            }
          }
          return null;
        }));
      }
      for (Future<?> one : running) {
        one.get();
      }
      assertEquals(0, in.getPos());
    }
    threads.shutdown();
  }

  @Test
  void rangesAreReadAtOnce() throws Exception {
    try (FSDataInputStream in = fs.open(new Path(dir, "f"))) {
      List<FileRange> ranges = new ArrayList<>();
      for (int i = 0; i < 32; i++) {
        ranges.add(FileRange.createFileRange((i * 7919L * 131) % (SIZE - 70_000), 1 + i * 2000));
      }
      in.readVectored(ranges, ByteBuffer::allocateDirect);
      for (FileRange range : ranges) {
        ByteBuffer data = range.getData().get(60, TimeUnit.SECONDS);
        assertEquals(ByteBuffer.wrap(content, (int) range.getOffset(), range.getLength()), data);
      }
      FileRange past = FileRange.createFileRange(SIZE - 1, 2);
      in.readVectored(List.of(past), ByteBuffer::allocate);
      ExecutionException e =
          assertThrows(ExecutionException.class, () -> past.getData().get(60, TimeUnit.SECONDS));
      assertTrue(e.getCause() instanceof EOFException, e.toString());
    }
  }

  @Test
  void theCursorReadsWhatIsThere() throws Exception {
    Random random = new Random(11);
    try (FSDataInputStream in = fs.open(new Path(dir, "f"), 4096)) {
      long at = 0;
      for (int i = 0; i < 2000; i++) {
        if (random.nextInt(4) == 0) {
          at = random.nextInt(SIZE + 1);
          in.seek(at);
        }
        if (random.nextInt(3) == 0) {
          int value = in.read();
          assertEquals(at < SIZE ? content[(int) at] & 0xff : -1, value);
          at += at < SIZE ? 1 : 0;
        } else if (random.nextInt(2) == 0) {
          ByteBuffer part = ByteBuffer.allocateDirect(1 + random.nextInt(300_000));
          int read = in.read(part);
          part.flip();
          assertEquals(ByteBuffer.wrap(content, (int) at, Math.max(read, 0)), part);
          at += Math.max(read, 0);
        } else {
          byte[] part = new byte[1 + random.nextInt(300_000)];
          int read = in.read(part, 0, part.length);
          assertEquals(
              ByteBuffer.wrap(content, (int) at, Math.max(read, 0)), ByteBuffer.wrap(part, 0, Math.max(read, 0)));
          at += Math.max(read, 0);
        }
        assertEquals(at, in.getPos());
      }
    }
  }

  @Test
  void hflushShowsWhatWasWrittenAndHsyncKeepsIt() throws Exception {
    Path path = new Path(dir, "log");
    try (FSDataOutputStream out = fs.create(path);
        FileSystem other = Volumes.fileSystem()) {
      assertTrue(out.hasCapability(StreamCapabilities.HFLUSH) && out.hasCapability(StreamCapabilities.HSYNC));
      out.write(content, 0, 1000);
      assertEquals(0, other.getFileStatus(path).getLen(), "nobody flushed");
      out.hflush();
      assertArrayEquals(Arrays.copyOf(content, 1000), Volumes.read(other, path));
      out.write(content, 1000, 500);
      out.hsync();
      assertEquals(1500, other.getFileStatus(path).getLen());
      assertArrayEquals(Arrays.copyOf(content, 1500), Volumes.read(other, path));
    }
  }

  @Test
  void anAppendContinuesAndCountsFromTheStart() throws Exception {
    Path path = new Path(dir, "grows");
    Volumes.write(fs, path, Arrays.copyOf(content, 300_001));
    try (FSDataOutputStream out = fs.append(path)) {
      assertEquals(300_001, out.getPos());
      out.write(content, 300_001, 700_000);
      assertEquals(1_000_001, out.getPos());
    }
    assertArrayEquals(Arrays.copyOf(content, 1_000_001), Volumes.read(fs, path));
    fs.truncate(path, 10);
    assertArrayEquals(Arrays.copyOf(content, 10), Volumes.read(fs, path));
    assertThrows(IllegalArgumentException.class, () -> fs.truncate(path, 11));
  }
}
