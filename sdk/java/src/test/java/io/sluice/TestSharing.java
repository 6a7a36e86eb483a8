package io.sluice;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.junit.jupiter.api.Test;

/** One volume for all file systems of a process. */
class TestSharing {
  private static final int USERS = 20;
  private static final int EACH = 10;

  /** Sockets to the metadata engine, or descriptors of its file, that this process has open. */
  private static int connections() throws IOException {
    String meta = System.getProperty("sluice.test.meta");
    String file = meta.startsWith("sqlite3://") ? meta.substring("sqlite3://".length()) : null;
    int count = 0;
    for (File fd : new File("/proc/self/fd").listFiles()) {
      try {
        String target = Files.readSymbolicLink(fd.toPath()).toString();
        count += file == null ? target.startsWith("socket:") ? 1 : 0 : target.startsWith(file) ? 1 : 0;
      } catch (IOException e) {
        // It was closed just now.
      }
    }
    return count;
  }

  private static long resident() throws IOException {
    String statm = new String(Files.readAllBytes(Paths.get("/proc/self/statm")), StandardCharsets.UTF_8);
    return Long.parseLong(statm.split(" ")[1]) * 4096;
  }

  @Test
  void twoHundredFileSystemsOfTwentyUsersCostWhatOneCosts() throws Exception {
    Configuration conf = new Configuration();
    conf.set("sluice.memory-size", "64");
    Path dir = Volumes.fresh("sharing");
    int sessions = Native.openHandles(false);
    int files = Native.openHandles(true);
    try (FileSystem first = Volumes.fileSystem(conf)) {
      first.mkdirs(dir);
      first.setPermission(dir, new FsPermission((short) 0777));
      work(first, new Path(dir, "first"));
      List<FileSystem> all = new ArrayList<>();
      ExecutorService threads = Executors.newFixedThreadPool(USERS);
      for (int user = 0; user < USERS; user++) {
        for (int i = 0; i < EACH; i++) {
          all.add(Volumes.as(conf, "user" + user, "staff"));
        }
      }
      long memory = resident();
      assertEquals(sessions + 1 + USERS * EACH, Native.openHandles(false));
      List<Future<?>> running = new ArrayList<>();
      for (int i = 0; i < all.size(); i++) {
        Path path = new Path(dir, "file" + i);
        FileSystem fs = all.get(i);
        running.add(threads.submit(() -> work(fs, path)));
      }
      for (Future<?> one : running) {
        one.get();
      }
      // A connection for each lane, those of the pool, and what listens to changes.
      int connections = connections();
      assertTrue(connections <= 40, connections + " connections");
      long grown = resident() - memory;
      assertTrue(grown < 512L << 20, grown + " bytes more");
      System.err.println("200 file systems: " + connections + " connections, " + (grown >> 20) + " MiB more");
      int number = 0;
      for (FileSystem fs : all) {
        String owner = "user" + number / EACH;
        assertEquals(owner, fs.getFileStatus(new Path(dir, "file" + number++)).getOwner());
        fs.close();
      }
      threads.shutdown();
      assertEquals(sessions + 1, Native.openHandles(false));
      // The volume is open still.
      work(first, new Path(dir, "last"));
      first.delete(dir, true);
    }
    assertEquals(sessions, Native.openHandles(false));
    assertEquals(files, Native.openHandles(true));
  }

  private static Void work(FileSystem fs, Path path) throws Exception {
    byte[] content = path.toString().getBytes(StandardCharsets.UTF_8);
    Volumes.write(fs, path, content);
    assertArrayEquals(content, Volumes.read(fs, path));
    return null;
  }

  @Test
  void whatIsClosedIsGoneAndNothingLeaks() throws Exception {
    int sessions = Native.openHandles(false);
    int descriptors = 0;
    for (int i = 0; i < 5; i++) {
      Configuration conf = new Configuration();
      // A volume of its own each time.
      conf.set("sluice.memory-size", Integer.toString(100 + i));
      FileSystem fs = Volumes.fileSystem(conf);
      Path path = Volumes.fresh("leak");
      work(fs, path);
      FSDataInputStream in = fs.open(path);
      fs.close();
      assertThrows(IOException.class, () -> fs.getFileStatus(path), "Filesystem closed");
      assertEquals('/', in.read(), "open files outlive their file system");
      in.close();
      assertThrows(IOException.class, in::read);
      int now = connections();
      descriptors = i == 1 ? now : descriptors;
      assertTrue(i < 2 || now <= descriptors, now + " connections after " + descriptors);
    }
    assertEquals(sessions, Native.openHandles(false));
  }
}
