package io.sluice;

import java.net.URI;
import java.security.PrivilegedExceptionAction;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * The volume of the tests. The property sluice.test.meta names its metadata; core-site.xml of the
 * tests refers to it. A kernel mount of it is at the property sluice.test.mount.
 */
public final class Volumes {
  public static final String URI = "sluice://test/";

  private static final AtomicInteger NUMBER = new AtomicInteger();

  private Volumes() {}

  /** A file system of its own, as the user who runs the tests: the superuser. */
  public static FileSystem fileSystem() throws Exception {
    return fileSystem(new Configuration());
  }

  public static FileSystem fileSystem(Configuration conf) throws Exception {
    return FileSystem.newInstance(new URI(URI), conf);
  }

  /** A file system of its own, as another user in these groups. */
  static FileSystem as(Configuration conf, String user, String... groups) throws Exception {
    UserGroupInformation ugi = UserGroupInformation.createUserForTesting(user, groups);
    return ugi.doAs((PrivilegedExceptionAction<FileSystem>) () -> fileSystem(conf));
  }

  /** As {@link #fileSystem}, but this user is nobody special. */
  public static Configuration ordinaryUser() {
    Configuration conf = new Configuration();
    conf.set("sluice.superuser", "nobody-else");
    // Others than the superuser cannot write where that works.
    conf.set("dfs.user.home.dir.prefix", "/ordinary");
    return conf;
  }

  public static FileContext fileContext() throws Exception {
    return FileContext.getFileContext(new URI(URI), new Configuration());
  }

  /** The path of a directory that nobody uses yet. */
  static Path fresh(String name) {
    return new Path("/tests/" + name + "-" + ProcessHandle.current().pid() + "-" + NUMBER.incrementAndGet());
  }

  static void write(FileSystem fs, Path path, byte[] content) throws Exception {
    try (FSDataOutputStream out = fs.create(path)) {
      out.write(content);
    }
  }

  static byte[] read(FileSystem fs, Path path) throws Exception {
    try (FSDataInputStream in = fs.open(path)) {
      return in.readAllBytes();
    }
  }
}
