package io.sluice.bench;

import java.io.IOException;
import java.net.URI;
import java.util.Arrays;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Hadoop's NNBench with many threads in one process: create_write, open_read, rename and delete,
 * each thread in a directory of its own. Prints a line for each operation and number of threads:
 * operation, threads, operations, operations per second, microseconds for one (mean, median, 99th
 * percentile). The last line is that of one rename of a directory of many files.
 *
 * <p>Arguments: URI, threads with commas, files of all threads together, bytes of each file, files
 * of the directory (0: none).
 */
public final class NameBench {
  private interface Act {
    void run(FileSystem fs, Path dir, int number) throws IOException;
  }

  private NameBench() {}

  public static void main(String[] args) throws Exception {
    URI uri = new URI(args[0]);
    int files = Integer.parseInt(args[2]);
    byte[] content = new byte[Integer.parseInt(args[3])];
    FileSystem fs = FileSystem.get(uri, new Configuration());
    Path root = new Path("/bench-" + System.nanoTime());
    // What the first operations of a process pay for is not measured.
    run(fs, new Path(root, "warm"), 4, Math.min(files, 100), content, false);
    for (String threads : args[1].split(",")) {
      int count = Integer.parseInt(threads);
      run(fs, new Path(root, threads), count, Math.max(files / count, 1), content, true);
    }
    int entries = Integer.parseInt(args[4]);
    if (entries > 0) {
      renameDirectory(fs, root, entries, content);
    }
    fs.delete(root, true);
    fs.close();
  }

  private static void renameDirectory(FileSystem fs, Path root, int entries, byte[] content) throws Exception {
    Path from = new Path(root, "directory");
    int threads = Math.min(20, entries);
    measure(fs, from, threads, entries / threads, false, "create_write", (at, dir, n) ->
        write(at, new Path(from, dir.getName() + "_" + n), content));
    measure(fs, root, 1, 1, true, "rename_directory", (at, dir, n) -> {
      if (!at.rename(from, new Path(root, "renamed"))) {
        throw new IOException("not renamed");
      }
    });
  }

  private static void write(FileSystem fs, Path file, byte[] content) throws IOException {
    try (FSDataOutputStream out = fs.create(file, false)) {
      out.write(content);
    }
  }

  private static void run(FileSystem fs, Path root, int threads, int files, byte[] content, boolean tell)
      throws Exception {
    for (int t = 0; t < threads; t++) {
      fs.mkdirs(new Path(root, "t" + t));
    }
    byte[] buffer = new byte[content.length + 1];
    measure(fs, root, threads, files, tell, "create_write", (at, dir, n) ->
        write(at, new Path(dir, "file_" + n), content));
    measure(fs, root, threads, files, tell, "open_read", (at, dir, n) -> {
      try (FSDataInputStream in = at.open(new Path(dir, "file_" + n))) {
        in.read(buffer.clone());
      }
    });
    measure(fs, root, threads, files, tell, "rename", (at, dir, n) -> {
      if (!at.rename(new Path(dir, "file_" + n), new Path(dir, "moved_" + n))) {
        throw new IOException("not renamed");
      }
    });
    measure(fs, root, threads, files, tell, "delete", (at, dir, n) -> {
      if (!at.delete(new Path(dir, "moved_" + n), false)) {
        throw new IOException("not deleted");
      }
    });
  }

  private static void measure(
      FileSystem fs, Path root, int threads, int files, boolean tell, String name, Act act)
      throws Exception {
    long[] nanos = new long[threads * files];
    CyclicBarrier together = new CyclicBarrier(threads + 1);
    AtomicLong failed = new AtomicLong();
    Thread[] running = new Thread[threads];
    for (int t = 0; t < threads; t++) {
      int number = t;
      running[t] = new Thread(() -> {
        Path dir = new Path(root, "t" + number);
        try {
          together.await();
          for (int i = 0; i < files; i++) {
            long begin = System.nanoTime();
            act.run(fs, dir, i);
            nanos[number * files + i] = System.nanoTime() - begin;
          }
        } catch (Exception e) {
          failed.incrementAndGet();
          e.printStackTrace();
        }
      });
      running[t].start();
    }
    together.await();
    long begin = System.nanoTime();
    for (Thread thread : running) {
      thread.join();
    }
    double seconds = (System.nanoTime() - begin) / 1e9;
    if (failed.get() > 0) {
      throw new IOException(failed.get() + " threads failed at " + name);
    }
    if (tell) {
      Arrays.sort(nanos);
      double mean = Arrays.stream(nanos).average().orElse(0) / 1e3;
      System.out.printf(
          "%s\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.0f%n",
          name, threads, nanos.length, nanos.length / seconds, mean, nanos[nanos.length / 2] / 1e3,
          nanos[nanos.length * 99 / 100] / 1e3);
    }
  }
}
