package io.sluice;

import java.io.IOException;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Trash;

/**
 * Empties the trash of all users, as the NameNode of HDFS does: one thread for each volume of a
 * process, while a superuser has it open and fs.trash.interval is not 0.
 */
final class TrashEmptier {
  /** Volumes that have one. */
  private static final Set<String> RUNNING = new HashSet<>();

  private final String volume;
  private final Thread thread;

  private TrashEmptier(String volume, Thread thread) {
    this.volume = volume;
    this.thread = thread;
  }

  /** Starts one; null if it is not wanted, or there is one. */
  static TrashEmptier start(FileSystem fs, String volume, Configuration conf) throws IOException {
    if (conf.getFloat("fs.trash.interval", 0) <= 0) {
      return null;
    }
    synchronized (RUNNING) {
      if (!RUNNING.add(volume)) {
        return null;
      }
    }
    Thread thread = new Thread(new Trash(fs, conf).getEmptier(), "sluice-trash-" + volume);
    thread.setDaemon(true);
    thread.start();
    return new TrashEmptier(volume, thread);
  }

  void stop() {
    thread.interrupt();
    synchronized (RUNNING) {
      RUNNING.remove(volume);
    }
  }
}
