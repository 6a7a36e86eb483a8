package io.sluice.bench;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.URI;
import java.nio.ByteBuffer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * What a positional read of 4 KiB from the cache in memory costs: microseconds of the thread's CPU,
 * into an array and into a direct buffer. Argument: the URI of a file system.
 */
public final class SmallReads {
  private static final int READS = 200_000;
  private static final int SIZE = 16 << 20;

  private SmallReads() {}

  public static void main(String[] args) throws Exception {
    FileSystem fs = FileSystem.get(new URI(args[0]), new Configuration());
    Path path = new Path("/small-reads-" + System.nanoTime());
    try (FSDataOutputStream out = fs.create(path)) {
      out.write(new byte[SIZE]);
    }
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    try (FSDataInputStream in = fs.open(path)) {
      in.readFully(0, new byte[SIZE]);
      byte[] array = new byte[4096];
      ByteBuffer direct = ByteBuffer.allocateDirect(4096);
      for (int round = 0; round < 4; round++) {
        long begin = threads.getCurrentThreadCpuTime();
        for (int i = 0; i < READS; i++) {
          in.readFully(place(i), array);
        }
        long middle = threads.getCurrentThreadCpuTime();
        for (int i = 0; i < READS; i++) {
          direct.clear();
          in.readFully(place(i), direct);
        }
        long end = threads.getCurrentThreadCpuTime();
        System.out.printf(
            "array %.2f, direct buffer %.2f%n", (middle - begin) / 1e3 / READS, (end - middle) / 1e3 / READS);
      }
    }
    fs.delete(path, false);
    fs.close();
  }

  private static long place(int number) {
    return (number * 2_654_435_761L & 0xffffffffL) % 4096 * 4096;
  }
}
