package io.sluice;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Trash;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Empties the trash of all users, as the NameNode of HDFS does: one thread for each volume of a
 * process, while a superuser has it open and fs.trash.interval is not 0.
 */
final class TrashEmptier {
  private static final Logger LOG = LoggerFactory.getLogger(TrashEmptier.class);

  /** The file systems of each volume that want one. The first of them has the thread. */
  private static final Map<String, Deque<TrashEmptier>> WANTED = new HashMap<>();

  private final FileSystem fs;
  private final String volume;
  private final Configuration conf;
  /** Null until it is the first. */
  private Thread thread;

  private TrashEmptier(FileSystem fs, String volume, Configuration conf) {
    this.fs = fs;
    this.volume = volume;
    this.conf = conf;
  }

  /** Starts one, or has it started when all that were there before have stopped; null if none is wanted. */
  static TrashEmptier start(FileSystem fs, String volume, Configuration conf) throws IOException {
    if (conf.getFloat("fs.trash.interval", 0) <= 0) {
      return null;
    }
    TrashEmptier emptier = new TrashEmptier(fs, volume, conf);
    synchronized (WANTED) {
      Deque<TrashEmptier> wanted = WANTED.computeIfAbsent(volume, name -> new ArrayDeque<>());
      wanted.add(emptier);
      if (wanted.size() == 1) {
        try {
          emptier.run();
        } catch (Throwable e) {
          WANTED.remove(volume);
          throw e;
        }
      }
    }
    return emptier;
  }

  private void run() throws IOException {
    thread = new Thread(new Trash(fs, conf).getEmptier(), "sluice-trash-" + volume);
    thread.setDaemon(true);
    thread.start();
  }

  /** Stops it, and starts that of another file system. The thread itself calls this, too, when it ends. */
  void stop() {
    synchronized (WANTED) {
      Deque<TrashEmptier> wanted = WANTED.get(volume);
      if (wanted == null || !wanted.remove(this)) {
        return;
      }
      if (thread != null) {
        thread.interrupt();
        runFirst(wanted);
      }
      if (wanted.isEmpty()) {
        WANTED.remove(volume);
      }
    }
  }

  private static void runFirst(Deque<TrashEmptier> wanted) {
    while (!wanted.isEmpty()) {
      try {
        wanted.peek().run();
        return;
      } catch (IOException | RuntimeException e) {
        LOG.warn("The trash of {} cannot be emptied", wanted.remove().volume, e);
      }
    }
  }
}
